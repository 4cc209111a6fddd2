"""Selection of objects for lists and watches: namespace, label selector, field selector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from trainyard.objects import NamespacedName
from trainyard.objects.labels import Selector, equality_requirement, parse_selector
from trainyard.objects.patterns import lazy_pattern
from trainyard.server.model import errors
from trainyard.server.model.resources import Resource
from trainyard.server.model.store import Label, Record, View

_FIELD = lazy_pattern(r"\s*([A-Za-z0-9_.\-/\[\]]+?)\s*(==|=|!=)((?:[^,\\]|\\.)*)(?:,|\Z)")

FieldTest = Callable[[NamespacedName, Record], bool]


class Selection(msgspec.Struct, frozen=True):
    """A compiled selection; `matches` tests one object. Without selectors only the namespace counts."""

    namespace: str = ""
    labels: Selector | None = None
    fields: tuple[FieldTest, ...] = ()
    label: Label | None = None
    """A label that every selected object has, for the label index; None when the selector demands none."""

    @property
    def is_unfiltered(self) -> bool:
        """Whether neither labels nor fields are selected."""
        return self.labels is None and not self.fields

    def matches(self, key: NamespacedName, record: Record) -> bool:
        """Whether the object is selected."""
        if self.namespace and key.namespace != self.namespace:
            return False
        if self.labels is not None and not self.labels(record.labels):
            return False
        return all(test(key, record) for test in self.fields)

    def select_from(self, view: View, start: NamespacedName | None = None) -> Iterator[tuple[NamespacedName, Record]]:
        """The selected objects of a view, in key order. A lazy iterator."""
        labels, fields = self.labels, self.fields
        for key in view.keys_in(self.namespace, start):
            record = view.records[key]
            if (labels is None or labels(record.labels)) and (not fields or all(test(key, record) for test in fields)):
                yield key, record


def select(resource: Resource, namespace: str, labels: str, fields: str, name: str = "") -> Selection:
    """Compile the selectors. Raises StatusError 400 for a malformed selector or an unsupported field."""
    try:
        chosen = parse_selector(labels) if labels.strip() else None
    except ValueError as error:
        raise errors.bad_request(f"unable to parse requirement: {error}") from None
    tests = _field_tests(resource, fields)
    if name:
        tests.append(_test(resource, "metadata.name", name, equal=True))
    return Selection(namespace, chosen, tuple(tests), equality_requirement(labels))


def require_field_selector(text: str) -> None:
    """Raises StatusError 400 for a malformed field selector."""
    for _ in _terms(text):
        pass


def name_in_field_selector(text: str) -> str:
    """The name in metadata.name=NAME of a field selector; "" without one or when the selector is malformed."""
    try:
        return next((value for field, value, equal in _terms(text) if equal and field == "metadata.name"), "")
    except errors.StatusError:
        return ""


def _field_tests(resource: Resource, text: str) -> list[FieldTest]:
    return [_test(resource, *term) for term in _terms(text)]


def _terms(text: str) -> Iterator[tuple[str, str, bool]]:
    """The terms of a field selector: (field, value, whether they must be equal). Raises StatusError 400."""
    position = 0
    while position < len(text):
        if not (match := _FIELD.match(text, position)):
            remainder = errors.printable(text[position:])
            raise errors.bad_request(f"invalid selector: '{errors.printable(text)}'; can't understand '{remainder}'")
        position = match.end()
        yield match[1], re.sub(r"\\(.)", r"\1", match[3].strip()), match[2] != "!="


def _test(resource: Resource, name: str, value: str, equal: bool) -> FieldTest:
    if name == "metadata.name":
        return lambda key, record: (key.name == value) is equal
    if name == "metadata.namespace":
        return lambda key, record: (key.namespace == value) is equal
    if name not in resource.field_names:
        supported = ", ".join(f'"{field}"' for field in ("metadata.name", "metadata.namespace", *resource.field_names))
        raise errors.bad_request(f'"{errors.printable(name)}" is not a known field selector: only {supported}')
    return lambda key, record: (record.fields.get(name, "") == value) is equal
