"""Prune, default, validate, unknown: one table each, and garbage."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects import Problem
from trainyard.schema import MAX_DEPTH, Schema

PRESERVE = "x-kubernetes-preserve-unknown-fields"


def of(spec: dict[str, Any]) -> Schema:
    return Schema({"type": "object", "properties": {"spec": spec}})


def table(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
REPLICAS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "replicaSpecs": {
            "type": "array",
            "items": {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0, "default": 1}}},
        }
    },
}

VALIDATE: list[tuple[str, dict[str, Any], Any, list[Problem]]] = [
    ("a word for a number", INTEGER, "two", [Problem("spec", 'Invalid value: "two": must be an integer, such as 1')]),
    ("true is no number", INTEGER, True, [Problem("spec", "Invalid value: true: must be an integer, such as 1")]),
    ("2.0 is an integer", INTEGER, 2.0, []),
    ("2.5 is not", INTEGER, 2.5, [Problem("spec", "Invalid value: 2.5: must be an integer, such as 1")]),
    ("a number for a string", STRING, 1, [Problem("spec", "Invalid value: 1: must be a string; put it in quotes")]),
    ("null for a string", STRING, None,
     [Problem("spec", "Invalid value: null: must be a string; put it in quotes; leave the field out for the default")]),
    ("null where it may be", {"type": "string", "nullable": True}, None, []),
    ("not a number", {"type": "number"}, float("nan"),
     [Problem("spec", "Invalid value: null: must be a number, such as 0.5")]),
    ("too small", {"type": "integer", "minimum": 0}, -1,
     [Problem("spec", "Invalid value: -1: must be greater than or equal to 0")]),
    ("not above", {"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0,
     [Problem("spec", "Invalid value: 0: must be greater than 0")]),
    ("too large", {"type": "integer", "maximum": 3}, 4,
     [Problem("spec", "Invalid value: 4: must be less than or equal to 3")]),
    ("beyond 32 bits", {"type": "integer", "format": "int32"}, 2**31,
     [Problem("spec", "Invalid value: 2147483648: must be less than or equal to 2147483647")]),
    ("beyond 64 bits", INTEGER, 2**63,
     [Problem("spec", "Invalid value: 9223372036854775808: must be an integer, such as 1")]),
    ("beyond any bits", INTEGER, 1e300, [Problem("spec", "Invalid value: 1e300: must be an integer, such as 1")]),
    ("one of", {"type": "string", "enum": ["a", "b"]}, "c",
     [Problem("spec", 'Unsupported value: "c": supported values: "a", "b"')]),
    ("empty", {"type": "string", "minLength": 1}, "", [Problem("spec", 'Invalid value: "": must not be empty')]),
    ("too long", {"type": "string", "maxLength": 2}, "abc",
     [Problem("spec", "Too long: may not be more than 2 characters; it has 3")]),
    ("pattern", {"type": "string", "pattern": "^[a-z]+$"}, "A",
     [Problem("spec", "Invalid value: \"A\": must match '^[a-z]+$'")]),
    ("a pattern's end is the end", {"type": "string", "pattern": "^[a-z]+$"}, "a\n",
     [Problem("spec", "Invalid value: \"a\\n\": must match '^[a-z]+$'")]),
    ("a dollar in a class is a dollar", {"type": "string", "pattern": "^[$]$"}, "$", []),
    ("int or string", {"x-kubernetes-int-or-string": True}, [],
     [Problem("spec", "Invalid value: []: must be an integer or a string")]),
    ("int or string, string", {"x-kubernetes-int-or-string": True}, "5%", []),
    ("too few", {"type": "array", "items": STRING, "minItems": 1}, [],
     [Problem("spec", "Invalid value: 0: must have at least 1 item")]),
    ("too many", {"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"],
     [Problem("spec", "Too many: 2: must have at most 1 item")]),
    ("in an item", REPLICAS, {"replicaSpecs": [{"replicas": "x"}]},
     [Problem("spec.replicaSpecs[0].replicas", 'Invalid value: "x": must be an integer, such as 1')]),
    ("in a map", {"type": "object", "additionalProperties": STRING}, {"a": 1, "b/c": 2},
     [Problem("spec.a", "Invalid value: 1: must be a string; put it in quotes"),
      Problem("spec.b/c", "Invalid value: 2: must be a string; put it in quotes")]),
    ("required", {"type": "object", "required": ["x", "y"], "properties": {"x": STRING}}, {},
     [Problem("spec.x", "Required value: write a string; put it in quotes"),
      Problem("spec.y", "Required value: write a value")]),
    ("the same key twice",
     {"type": "array", "items": {"type": "object", "properties": {"name": STRING}},
      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
     [{"name": "a"}, {"name": "b"}, {"name": "a"}],
     [Problem("spec[2]", 'Duplicate value: {"name":"a"}: the same as item 0; each must be different')]),
    ("a set", {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, ["a", "a"],
     [Problem("spec[1]", 'Duplicate value: "a": the same as item 0; each must be different')]),
    ("any of", {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {},
     [Problem("spec", "Invalid value: {}: must match at least one of the 2 schemas (anyOf)")]),
    ("not", {"not": {"enum": ["x"]}}, "x",
     [Problem("spec", 'Invalid value: "x": must not match the schema under `not`')]),
    ("an embedded resource says what it is", {"type": "object", "x-kubernetes-embedded-resource": True}, {},
     [Problem("spec.apiVersion", "Required value: write a value"),
      Problem("spec.kind", "Required value: write a value")]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "problems"), table(VALIDATE))
def test_every_problem_is_found_at_its_path(schema: dict[str, Any], value: Any, problems: list[Problem]) -> None:
    assert of(schema).validate({"spec": value}) == problems


FREE: dict[str, Any] = {
    "type": "object",
    PRESERVE: True,
    "properties": {"known": {"type": "object", "properties": {"a": INTEGER}}},
}
PRUNE: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("unknown goes", {"type": "object", "properties": {"a": INTEGER}}, {"a": 1, "b": 2}, {"a": 1}),
    ("a bare object knows nothing", {"type": "object"}, {"a": 1}, {}),
    ("preserved stays, but not below what is named", FREE, {"x": {"y": 1}, "known": {"a": 1, "z": 2}},
     {"x": {"y": 1}, "known": {"a": 1}}),
    ("in items", {"type": "array", "items": {"type": "object", "properties": {"a": INTEGER}}}, [{"a": 1, "b": 2}, 3],
     [{"a": 1}, 3]),
    ("in maps", {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": INTEGER}}},
     {"k": {"a": 1, "b": 2}}, {"k": {"a": 1}}),
    ("an embedded resource keeps its identity",
     {"type": "object", "x-kubernetes-embedded-resource": True,
      "properties": {"spec": {"type": "object", PRESERVE: True}}},
     {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"y": 1}, "more": 1},
     {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"y": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "left"), table(PRUNE))
def test_pruning_removes_unknown_fields(schema: dict[str, Any], value: Any, left: Any) -> None:
    given_value = {"kind": "K", "metadata": {"name": "n"}, "spec": value, "junk": 1}
    before = copy.deepcopy(given_value)
    assert of(schema).prune(given_value) == {"kind": "K", "metadata": {"name": "n"}, "spec": left}
    assert given_value == before


DEFAULT: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("in items", REPLICAS, {"replicaSpecs": [{}, {"replicas": 5}]},
     {"replicaSpecs": [{"replicas": 1}, {"replicas": 5}]}),
    ("below a default", {"type": "object", "properties": {"a": {
        "type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}}}}, {},
     {"a": {"b": "x"}}),
    ("a parent is not invented", {"type": "object", "properties": {"a": {
        "type": "object", "properties": {"b": {"type": "string", "default": "x"}}}}}, {}, {}),
    ("a whole number is one",
     {"type": "object", "properties": {"a": INTEGER, "b": {"type": "array", "items": INTEGER}}},
     {"a": 2.0, "b": [1.0, 2.5, True]}, {"a": 2, "b": [1, 2.5, True]}),
    ("null gives way to the default", {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
     {"a": None}, {"a": "x"}),
    ("null goes where it may not stay", {"type": "object", "properties": {"a": STRING}}, {"a": None}, {}),
    ("null stays where it may", {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}},
     {"a": None}, {"a": None}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "full"), table(DEFAULT))
def test_defaults_set_missing_fields(schema: dict[str, Any], value: Any, full: Any) -> None:
    given_value = {"spec": value}
    before = copy.deepcopy(given_value)
    assert repr(of(schema).default(given_value)) == repr({"spec": full})
    assert given_value == before


def test_a_default_is_nobodys_to_edit() -> None:
    schema = of({"type": "object", "properties": {"a": {"type": "object", "default": {"b": []}, PRESERVE: True}}})
    schema.default({"spec": {}})["spec"]["a"]["b"].append(1)
    assert schema.default({"spec": {}}) == {"spec": {"a": {"b": []}}}


def test_unknown_fields_are_listed_even_where_they_are_preserved() -> None:
    schema = of({**FREE, "properties": {**FREE["properties"], "free": {"type": "object", PRESERVE: True}}})
    obj = {"metadata": {"x": 1}, "spec": {"x": 1, "known": {"z": 1}, "free": {"q": 1}}, "junk": 1}
    assert schema.unknown_fields(obj) == ["spec.x", "spec.known.z", "junk"]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_a_deep_object_is_one_problem_and_no_crash(levels: int) -> None:
    deep = nested(levels)
    schema = of({"type": "object", PRESERVE: True})
    assert [problem.text for problem in schema.validate({"spec": deep})] == [
        "Invalid value: nested deeper than 100 levels; flatten it"
    ]
    assert schema.unknown_fields({"spec": deep}) == []
    assert schema.default(schema.prune({"spec": deep}))["spec"] is deep


def test_the_problems_of_a_long_list_are_truncated_with_a_note() -> None:
    problems = of({"type": "array", "items": INTEGER}).validate({"spec": ["x"] * 100_000})
    assert len(problems) == 201
    assert problems[-1].text.startswith("Too many: 200 problems and more")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "strng"}, "spec: unknown type 'strng'"),
        ({"type": "string", "pattern": "("}, "spec: pattern '\\(' is not a regular expression"),
        (1, "spec is not a schema: 1"),
        ({"properties": 5}, "the schema is malformed"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        of(schema)


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        Schema(schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: (
        st.lists(below) | st.dictionaries(st.sampled_from(["spec", "a", "name", "replicaSpecs"]) | st.text(), below)
    ),
)
BIG = Schema({
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {**REPLICAS, "properties": {**REPLICAS["properties"], "a": {
            "type": "array", "items": {"type": "object", "properties": {"name": STRING}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}}},
        "a": {"type": "array", "x-kubernetes-list-type": "set", "items": {PRESERVE: True}},
        "name": {"anyOf": [INTEGER, STRING], PRESERVE: True},
    },
})  # fmt: skip


@given(JSON)
def test_no_json_value_raises_and_shaping_twice_is_shaping_once(value: Any) -> None:
    obj = {"spec": value} if not isinstance(value, dict) else value
    BIG.validate(value)
    BIG.unknown_fields(value)
    once = BIG.default(BIG.prune(obj))
    assert repr(BIG.default(BIG.prune(once))) == repr(once)
