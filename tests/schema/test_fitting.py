"""The quick look agrees with the check: what it lets pass has no problem, whatever the value."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects import Json, Problem
from trainyard.schema.checks import compile_check
from trainyard.schema.fast_path import compile_is_valid

KEEP = "x-kubernetes-preserve-unknown-fields"
ITEM: Json = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "n": {"type": "integer"}}}
FIELDS: Json = {
    "s": {"type": "string"},
    "b": {"type": "boolean", "nullable": True},
    "i": {"type": "integer", "nullable": True},
    "any": {KEEP: True},
    "mixed": {"x-kubernetes-int-or-string": True, "nullable": True},
    "low": {"type": "integer", "minimum": 2},
    "map": {"type": "object", "additionalProperties": {"type": "string", "nullable": True}, "maxProperties": 2},
    "list": {
        "type": "array",
        "items": {**ITEM, "required": ["name"]},
        "maxItems": 3,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "free": {"type": "object", KEEP: True, "nullable": True},
}
SCHEMA: Json = {
    "type": "object",
    "required": ["s"],
    "properties": {**FIELDS, "deep": {"type": "object", "properties": FIELDS}},
}
LEAVES = (
    st.none() | st.booleans() | st.integers(-1, 3) | st.just(2**63) | st.just(2.0) | st.sampled_from(["", "a", "long"])
)
VALUES = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.sampled_from([*FIELDS, "name", "n", "deep", "x"]), below)
    ),
    max_leaves=20,
)


def right(part: Json) -> st.SearchStrategy[Any]:
    """Mostly values that fit a part."""
    if "properties" in part:
        return st.fixed_dictionaries({}, optional={name: right(schema) for name, schema in part["properties"].items()})
    if "items" in part:
        return st.lists(right(part["items"]), max_size=3)
    if "additionalProperties" in part:
        return st.dictionaries(st.sampled_from("abc"), right(part["additionalProperties"]))
    kinds: dict[str, st.SearchStrategy[Any]] = {"string": st.sampled_from("abc"), "boolean": st.booleans()}
    return kinds.get(part.get("type", ""), st.integers(0, 3)) | LEAVES


@given(VALUES | right(SCHEMA))
def test_a_value_without_problems_fits_the_schema_and_the_reverse_but_for_whole_floats(value: Any) -> None:
    problems: list[Problem] = []
    compile_check(SCHEMA)(value, "", problems)
    fits = compile_is_valid(SCHEMA)(value)
    assert not (fits and problems), problems
    assert fits or problems or closer_look(value)


def closer_look(value: Any) -> bool:
    """What only the check may judge: 2.0 for 2, an integer where text may stand, and items whose key is not there."""
    return any(part in repr(value) for part in ("2.0", "mixed", "list"))
