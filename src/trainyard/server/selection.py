"""Which objects a list or a watch is about: a namespace, a label selector, a field selector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from trainyard.objects import Key
from trainyard.objects.labels import Selects, demanded, selector
from trainyard.server import errors
from trainyard.server.resources import Resource
from trainyard.server.store import Label, Record, View

_FIELD = re.compile(r"\s*([A-Za-z0-9_.\-/\[\]]+?)\s*(==|=|!=)((?:[^,\\]|\\.)*)(?:,|\Z)")

FieldTest = Callable[[Key, Record], bool]


class Selection(msgspec.Struct, frozen=True):
    """`wants` is the whole question. Without selectors only the namespace counts."""

    namespace: str = ""
    labels: Selects | None = None
    fields: tuple[FieldTest, ...] = ()
    label: Label | None = None
    """One that everything which is wanted has."""

    @property
    def everything(self) -> bool:
        return self.labels is None and not self.fields

    def wants(self, key: Key, record: Record) -> bool:
        if self.namespace and key.namespace != self.namespace:
            return False
        if self.labels is not None and not self.labels(record.labels):
            return False
        return all(test(key, record) for test in self.fields)

    def among(self, view: View, start: Key | None = None) -> Iterator[tuple[Key, Record]]:
        """What is wanted of a store, in the order of the keys. It looks no further than it is asked to."""
        labels, fields = self.labels, self.fields
        for key in view.within(self.namespace, start):
            record = view.records[key]
            if (labels is None or labels(record.labels)) and (not fields or all(test(key, record) for test in fields)):
                yield key, record


def select(resource: Resource, namespace: str, labels: str, fields: str, name: str = "") -> Selection:
    """Raises Refused 400 when a selector is malformed or asks for a field the resource does not offer."""
    try:
        chosen = selector(labels) if labels.strip() else None
    except ValueError as error:
        raise errors.bad_request(f"unable to parse requirement: {error}") from None
    tests = _field_tests(resource, fields)
    if name:
        tests.append(_test(resource, "metadata.name", name, equal=True))
    return Selection(namespace, chosen, tuple(tests), demanded(labels))


def must_parse(text: str) -> None:
    """Raises Refused 400 when that is no field selector."""
    for _ in _terms(text):
        pass


def one_name(text: str) -> str:
    """The name that a field selector demands, "" when it demands none or is none."""
    try:
        return next((value for field, value, equal in _terms(text) if equal and field == "metadata.name"), "")
    except errors.Refused:
        return ""


def _field_tests(resource: Resource, text: str) -> list[FieldTest]:
    return [_test(resource, *term) for term in _terms(text)]


def _terms(text: str) -> Iterator[tuple[str, str, bool]]:
    """Field, value, and whether they must be equal. Raises Refused 400."""
    at = 0
    while at < len(text):
        if not (found := _FIELD.match(text, at)):
            left = errors.printable(text[at:])
            raise errors.bad_request(f"invalid selector: '{errors.printable(text)}'; can't understand '{left}'")
        at = found.end()
        yield found[1], re.sub(r"\\(.)", r"\1", found[3].strip()), found[2] != "!="


def _test(resource: Resource, name: str, wanted: str, equal: bool) -> FieldTest:
    if name == "metadata.name":
        return lambda key, record: (key.name == wanted) is equal
    if name == "metadata.namespace":
        return lambda key, record: (key.namespace == wanted) is equal
    if name not in resource.field_names:
        known = ", ".join(f'"{one}"' for one in ("metadata.name", "metadata.namespace", *resource.field_names))
        raise errors.bad_request(f'"{errors.printable(name)}" is not a known field selector: only {known}')
    return lambda key, record: (record.fields.get(name, "") == wanted) is equal
