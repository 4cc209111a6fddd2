"""What makes a schema structural: rules of a definition's schema, with the real server's paths and words.

    structure_problems(schema, "spec.validation.openAPIV3Schema")

Rules for this file:
- The schema may be anybody's: any JSON value gives problems, never an exception.
- Logic (anyOf, oneOf, allOf, not) may only narrow what the structure around it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import DEPTH, INT_OR_STRING, compile_check, shown
from trainyard.schema.patterns import PatternError, compiled_pattern
from trainyard.schema.shaping import EMBEDDED, PRESERVE, compile_prune

TYPES = ("array", "boolean", "integer", "number", "object", "string")
LIST_TYPE, LIST_KEYS, MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
VALIDATIONS = "x-kubernetes-validations"
UNSUPPORTED = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id")
_OF_EVERY_OBJECT = {"apiVersion": "string", "kind": "string", "metadata": "object"}
_OF_METADATA = {"type", "properties", "title", "description", "default"}
LOGIC_WITHOUT = (
    *("type", "title", "description", "default", "nullable", "additionalProperties", PRESERVE, EMBEDDED),
    *(INT_OR_STRING, LIST_TYPE, LIST_KEYS, MAP_TYPE, VALIDATIONS),
)
EITHER = ({"type": "integer"}, {"type": "string"})


def structure_problems(schema: Any, path: str) -> list[Problem]:
    """Everything that keeps a schema from being one of a definition."""
    if not isinstance(schema, dict):
        return [Problem(path, f"Invalid value: {shown(schema)}: must be an object")]
    try:
        found = list(_at_root(schema, path))
        return found or list(_all_defaults(schema, path))
    except (AttributeError, TypeError, ValueError) as error:  # `properties: 5` and the like
        return [Problem(path, f"Invalid value: the schema is malformed: {error}")]


def _at_root(schema: Json, path: str) -> Iterator[Problem]:
    kind = schema.get("type")
    if not kind:
        yield Problem(f"{path}.type", "Required value: must not be empty at the root")
    elif kind != "object":
        yield Problem(f"{path}.type", f"Invalid value: {shown(kind)}: must be object at the root")
    meta = (schema.get("properties") or {}).get("metadata")
    own = isinstance(meta, dict) and (meta.get("properties") or {}).keys() <= {"name", "generateName"}
    if isinstance(meta, dict) and not (own and meta.keys() <= _OF_METADATA):
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield Problem(f"{path}.properties[metadata]", f"Forbidden: {text}")
    for name, wanted in _OF_EVERY_OBJECT.items():
        part = (schema.get("properties") or {}).get(name)
        if isinstance(part, dict) and part.get("type") in TYPES and part["type"] != wanted:
            text = f"Invalid value: {shown(part['type'])}: must be {wanted}"
            yield Problem(f"{path}.properties[{name}].type", text)
    if schema.get("nullable") is True:
        yield Problem(f"{path}.nullable", "Forbidden: nullable cannot be true at the root")
    yield from _structure(schema, path, 0)


def _structure(schema: Any, path: str, level: int) -> Iterator[Problem]:
    if level > DEPTH or not isinstance(schema, dict):
        yield Problem(path, "Invalid value: must be a schema, nested no deeper than the server reads")
        return
    yield from _type(schema, path, level)
    yield from _words(schema, path)
    yield from _lists(schema, path)
    yield from _maps(schema, path)
    properties, more, items = schema.get("properties") or {}, schema.get("additionalProperties"), schema.get("items")
    if more is not None and properties and more is not True:
        yield Problem(
            f"{path}.additionalProperties", "Forbidden: additionalProperties and properties are mutual exclusive"
        )
    for name, part in properties.items():
        yield from _structure(part, f"{path}.properties[{name}]", level + 1)
    if isinstance(more, dict):
        yield from _structure(more, f"{path}.additionalProperties", level + 1)
    if isinstance(items, dict):
        yield from _structure(items, f"{path}.items", level + 1)
    for place, part in _logic(schema, path):
        yield from _narrowing(part, place, schema.get(INT_OR_STRING) is True, level + 1)


def _type(schema: Json, path: str, level: int) -> Iterator[Problem]:
    kind = schema.get("type")
    if kind and kind not in TYPES:
        supported = ", ".join(f'"{one}"' for one in TYPES)
        yield Problem(f"{path}.type", f"Unsupported value: {shown(kind)}: supported values: {supported}")
    free = schema.get(INT_OR_STRING) is True or schema.get(PRESERVE) is True
    if not kind and not free and level and "$ref" not in schema:
        what = "array items" if path.endswith(".items") else "object fields"
        yield Problem(f"{path}.type", f"Required value: must not be empty for specified {what}")


def _words(schema: Json, path: str) -> Iterator[Problem]:
    for word in UNSUPPORTED:
        if word in schema:
            yield Problem(f"{path}.{word}", f"Forbidden: {word} is not supported")
    if schema.get("uniqueItems") is True:
        text = "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield Problem(f"{path}.uniqueItems", text)
    if schema.get(PRESERVE) is False:
        yield Problem(f"{path}.{PRESERVE}", "Invalid value: false: must be true or undefined")
    if schema.get(EMBEDDED) is True and not schema.get("properties") and schema.get(PRESERVE) is not True:
        text = f"Required value: must not be empty if {EMBEDDED} is true without {PRESERVE}"
        yield Problem(f"{path}.properties", text)
    if pattern := schema.get("pattern"):
        try:
            compiled_pattern(pattern)
        except (PatternError, TypeError) as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield Problem(f"{path}.pattern", f"Invalid value: {shown(pattern)}: {text}")


def _lists(schema: Json, path: str) -> Iterator[Problem]:
    items, kind, form = schema.get("items"), schema.get("type"), schema.get(LIST_TYPE)
    if kind == "array" and items is None:
        yield Problem(f"{path}.items", "Required value: must be specified")
    if isinstance(items, list):
        yield Problem(f"{path}.items", "Forbidden: items must be a schema object and not an array")
    if form is None:
        return
    if form not in ("atomic", "set", "map"):
        text = f'Unsupported value: {shown(form)}: supported values: "atomic", "set", "map"'
        yield Problem(f"{path}.{LIST_TYPE}", text)
    if kind != "array":
        yield Problem(f"{path}.type", f"Invalid value: {shown(kind)}: must be array if {LIST_TYPE} is specified")
    if form == "set" and isinstance(items, dict) and items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        text = f"Invalid value: {shown(items.get(MAP_TYPE))}: must be atomic as item of a list with {LIST_TYPE}=set"
        yield Problem(f"{path}.items.{MAP_TYPE}", text)
    if form == "map":
        yield from _keyed(schema, items if isinstance(items, dict) else {}, path)


def _maps(schema: Json, path: str) -> Iterator[Problem]:
    kind, form = schema.get("type"), schema.get(MAP_TYPE)
    if form is None:
        return
    if form not in ("atomic", "granular"):
        text = f'Unsupported value: {shown(form)}: supported values: "atomic", "granular"'
        yield Problem(f"{path}.{MAP_TYPE}", text)
    if kind != "object":
        yield Problem(f"{path}.type", f"Invalid value: {shown(kind)}: must be object if {MAP_TYPE} is specified")


def _keyed(schema: Json, items: Json, path: str) -> Iterator[Problem]:
    keys, properties = schema.get(LIST_KEYS) or [], items.get("properties") or {}
    if not keys:
        yield Problem(f"{path}.{LIST_KEYS}", f"Required value: must not be empty if {LIST_TYPE} is map")
    if any(key not in properties for key in keys):
        yield Problem(
            f"{path}.{LIST_KEYS}", f"Invalid value: {shown(keys)}: entries must all be names of item properties"
        )
        return
    for key in keys:
        if key not in (items.get("required") or ()) and "default" not in properties[key]:
            text = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            yield Problem(f"{path}.items.properties[{key}].default", f"Required value: {text}")


def _logic(schema: Json, path: str) -> Iterator[tuple[str, Any]]:
    for word in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(word) or ()):
            yield f"{path}.{word}[{index}]", part
    if schema.get("not") is not None:
        yield f"{path}.not", schema["not"]


def _narrowing(part: Any, path: str, mixed: bool, level: int) -> Iterator[Problem]:
    """A part of the logic says nothing that belongs to the structure."""
    if level > DEPTH or not isinstance(part, dict):
        yield Problem(path, "Invalid value: must be a schema")
        return
    if not (mixed and part in EITHER):
        for word in LOGIC_WITHOUT:
            if word in part and not (mixed and part.get("anyOf") == list(EITHER)):
                yield Problem(f"{path}.{word}", "Forbidden: must be empty to be structural")
    for name, below in (part.get("properties") or {}).items():
        yield from _narrowing(below, f"{path}.properties[{name}]", False, level + 1)
    if isinstance(part.get("items"), dict):
        yield from _narrowing(part["items"], f"{path}.items", False, level + 1)
    for place, below in _logic(part, path):
        yield from _narrowing(below, place, mixed, level + 1)


def _all_defaults(schema: Json, path: str) -> Iterator[Problem]:
    """A default must be a value that the schema takes as it stands."""
    if schema.get("default") is not None:
        place, value = f"{path}.default", schema["default"]
        found: list[Problem] = []
        compile_check(schema)(value, "", found)
        prune = compile_prune(schema)
        if prune is not None and prune(value) is not value:
            found.append(Problem("", f"Invalid value: {shown(value)}: must not have unknown fields"))
        yield from (Problem(place, problem.text) for problem in found)
    for name, part in (schema.get("properties") or {}).items():
        yield from _all_defaults(part, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _all_defaults(schema[word], f"{path}.{word}")
