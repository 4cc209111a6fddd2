"""Names of fields that are not known but resemble a known one: `tfReplicaTyp`, `restartPolcy`, `comand`.

The API server stores unknown fields (S30), so a misspelt one would silently change what a job is. Whoever reads a file
that a person wrote refuses it. A field that resembles nothing may be of a newer Kubernetes, and is only warned about.

How alike two names must be was measured: of no two fields of one type of Kubernetes is one taken for the other, so a
newer Kubernetes may have fields beside those known here (tests/kinds/test_misspelt.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from trainyard.objects import Json, Problem, decode, encode

METADATA = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid"),
    *("resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
"""The fields of ObjectMeta, of which the schemas name only those that a rule looks at."""

ONE_EDIT = 4  # characters of the longer name from which one edit is a misspelling
TWO_EDITS = 8  # characters of the shorter name from which two edits are one, if the names begin alike


class Misspelling(NamedTuple):
    """A misspelt field: its path, the mapping that holds it, and its two names."""

    path: str
    holder: Json
    name: str
    meant: str


def misspelt_fields(schema: Json, obj: Json) -> tuple[list[Problem], Json]:
    """A problem for each field whose name resembles that of a field of the schema, and the object as it was meant."""
    problems: list[Problem] = []
    schema = {**schema, "properties": {**schema["properties"], "status": {}}}  # not a person's
    meant = obj
    while found := list(_misspelt(schema, meant, "", ())):
        if meant is obj:
            meant = decode(encode(obj))
            found = list(_misspelt(schema, meant, "", ()))
        for field in found:
            problems.append(Problem(field.path, f"there is no such field; did you mean {field.meant}?"))
            value = field.holder.pop(field.name)
            field.holder.setdefault(field.meant, value)
    return problems, meant


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that was probably meant, "" when it resembles none."""
    close = [(distance, other) for other in known if (distance := _distance(_plain(name), _plain(other))) <= 2]
    return next((other for distance, other in sorted(close) if _resembles(name, other, distance)), "")


def _misspelt(schema: Json, value: Any, path: str, known: Collection[str]) -> Iterator[Misspelling]:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _misspelt(schema["items"], item, f"{path}[{index}]", ())
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    names = known or properties
    for name, below in value.items():
        place = f"{path}.{name}" if path else name
        if name in properties or name in names:
            inner = METADATA if name == "metadata" else ()
            yield from _misspelt(properties.get(name) or {}, below, place, inner)
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _misspelt(schema["additionalProperties"], below, place, ())
        elif meant := nearest(name, names):
            yield Misspelling(place, value, name, meant)


def _resembles(name: str, other: str, distance: int) -> bool:
    if distance <= 1:
        return distance == 0 or max(len(name), len(other)) >= ONE_EDIT
    return min(len(name), len(other)) >= TWO_EDITS and name[:1].lower() == other[:1].lower()


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _distance(one: str, other: str) -> int:
    """Edits from one name to the other: a character more, less or changed, or two neighbours swapped. 3: too many."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(other, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]
