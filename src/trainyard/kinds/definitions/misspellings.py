"""Finding misspelt field names, unknown names that resemble a known one: `tfReplicaTyp`, `restartPolcy`, `comand`.

The API server preserves unknown fields (S30), so a misspelt field would silently change the job. Commands that read a
user's file therefore reject it. An unknown field that resembles no known one may be of a newer Kubernetes and is only a
warning.

The required similarity was measured: no field of a Kubernetes type counts as a misspelling of another field of the same
type, so new fields of a newer Kubernetes are not rejected (tests/kinds/test_misspelt.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from trainyard.objects import Json, Problem, decode, encode

METADATA = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid"),
    *("resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
"""The fields of ObjectMeta. The schemas specify only those that a rule uses."""

MIN_LENGTH_FOR_ONE_EDIT = 4  # one edit is a misspelling when the longer name has at least so many characters
# two edits are a misspelling when the shorter name has at least so many, and both begin with the same letter
MIN_LENGTH_FOR_TWO_EDITS = 8


class Misspelling(msgspec.Struct, frozen=True):
    """A misspelt field: its path, the object that has it, its name, and the name that was probably meant."""

    path: str
    parent: Json
    name: str
    corrected_name: str


def misspelt_fields(schema: Json, obj: Json) -> tuple[list[Problem], Json]:
    """A problem for each misspelt field, and a copy of the object with the corrected names.

    Without misspellings the object itself is returned.
    """
    problems: list[Problem] = []
    schema = {**schema, "properties": {**schema["properties"], "status": {}}}  # not written by users
    corrected = obj
    # Repeated after each correction, because the fields below a misspelt one are not checked before it is corrected.
    while misspellings := list(_misspellings(schema, corrected, "", ())):
        if corrected is obj:
            corrected = decode(encode(obj))
            misspellings = list(_misspellings(schema, corrected, "", ()))
        for field in misspellings:
            problems.append(Problem(field.path, f"there is no such field; did you mean {field.corrected_name}?"))
            value = field.parent.pop(field.name)
            field.parent.setdefault(field.corrected_name, value)
    return problems, corrected


def most_similar_name(name: str, known: Collection[str]) -> str:
    """The known name that was probably meant, "" when the name resembles none."""
    candidates = [
        (distance, known_name)
        for known_name in known
        if (distance := _edit_distance(_normalized(name), _normalized(known_name))) <= 2
    ]
    return next(
        (known_name for distance, known_name in sorted(candidates) if _resembles(name, known_name, distance)), ""
    )


def _misspellings(schema: Json, value: Any, path: str, known: Collection[str]) -> Iterator[Misspelling]:
    """The misspelt fields of a value. `known`: its field names, where they are not those of the schema."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _misspellings(schema["items"], item, f"{path}[{index}]", ())
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    names = known or properties
    for name, field_value in value.items():
        field_path = f"{path}.{name}" if path else name
        if name in properties or name in names:
            known_below = METADATA if name == "metadata" else ()
            yield from _misspellings(properties.get(name) or {}, field_value, field_path, known_below)
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _misspellings(schema["additionalProperties"], field_value, field_path, ())
        elif meant := most_similar_name(name, names):
            yield Misspelling(field_path, value, name, meant)


def _resembles(name: str, known_name: str, distance: int) -> bool:
    if distance <= 1:
        return distance == 0 or max(len(name), len(known_name)) >= MIN_LENGTH_FOR_ONE_EDIT
    return min(len(name), len(known_name)) >= MIN_LENGTH_FOR_TWO_EDITS and name[:1].lower() == known_name[:1].lower()


def _normalized(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _edit_distance(name: str, known_name: str) -> int:
    """The optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbouring characters.

    3 stands for any distance above 2 when the lengths alone show it.
    """
    if abs(len(name) - len(known_name)) > 2:
        return 3
    previous_row: list[int] = []
    row = list(range(len(known_name) + 1))
    for i, a in enumerate(name, 1):
        previous_row, row_before_previous, row = row, previous_row, [i]
        for j, b in enumerate(known_name, 1):
            distance = min(previous_row[j] + 1, row[j - 1] + 1, previous_row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == known_name[j - 2] and name[i - 2] == b:
                distance = min(distance, row_before_previous[j - 2] + 1)
            row.append(distance)
    return row[-1]
