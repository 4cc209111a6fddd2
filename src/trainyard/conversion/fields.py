"""The fields of a source object, and the report of those that the target cannot have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainyard.objects import Json, Problem


class Report:
    """What a user has to know about one converted object.

    `unmapped`: fields whose effect the result does not have. `notes`: effects of the result that differ from those of
    the source, although every field is mapped."""

    def __init__(self) -> None:
        self.unmapped: list[Problem] = []
        self.notes: list[Problem] = []


class Fields:
    """The fields of an object of the source, taken by name. A field that is null counts as unset, as in the API."""

    def __init__(self, value: object, path: str, report: Report) -> None:
        self.path = path
        self.report = report
        self._fields: Json = dict(value) if isinstance(value, dict) else {}
        self._children: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    @property
    def names(self) -> list[str]:
        """The names of the fields that are set and not yet taken."""
        return [name for name, value in self._fields.items() if value is not None]

    def path_of(self, name: str) -> str:
        """The path of a field: spec.replicaSpecs."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field, which is the caller's to map from now on."""
        value = self._fields.pop(name, None)
        return default if value is None else value

    def peek(self, name: str) -> Any:
        """The value of a field, which is still to be taken."""
        return self._fields.get(name)

    def take_known(self, names: Iterable[str]) -> Json:
        """The set fields among `names`."""
        return {name: value for name in names if (value := self.take(name)) is not None}

    def child(self, name: str) -> Fields:
        """The object in a field; one without fields if it is unset."""
        return self._add(self.take(name), self.path_of(name))

    def items(self, name: str) -> list[Fields]:
        """The objects of a list."""
        values = self.take(name, [])
        return [self._add(value, f"{self.path_of(name)}[{index}]") for index, value in enumerate(values)]

    def _add(self, value: object, path: str) -> Fields:
        child = Fields(value, path, self.report)
        self._children.append(child)
        return child

    def unmapped(self, name: str, reason: str) -> None:
        """Take a field that the target cannot have and report it, if it is set. `reason` says what to do."""
        if self.take(name) is not None:
            self.report_unmapped(name, reason)

    def report_unmapped(self, name: str, reason: str) -> None:
        """Report a field that the target cannot have. `reason` says what to do."""
        self.report.unmapped.append(Problem(self.path_of(name), reason))

    def note(self, name: str, text: str) -> None:
        """Report an effect of a field that differs in the result."""
        self.report.notes.append(Problem(self.path_of(name), text))

    def report_rest(self, text: str) -> None:
        """Report every field that no caller has taken, in this object and in those below it."""
        self.report.unmapped += [Problem(self.path_of(name), text) for name in self.names]
        for child in self._children:
            child.report_rest(text)


SERVER_FIELDS = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
"""Fields of metadata that an API server writes: they are not the user's."""
KEPT_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def take_metadata(source: Fields) -> Json:
    """The metadata of the result: that of the source without what API servers and kubectl have written. The status is
    dropped."""
    source.take("status")
    metadata = source.child("metadata")
    metadata.take_known(SERVER_FIELDS)
    kept = metadata.take_known(KEPT_METADATA)
    annotations = {name: value for name, value in (kept.pop("annotations", None) or {}).items() if name != LAST_APPLIED}
    return {**kept, "annotations": annotations} if annotations else kept
