"""Validation of the schema of a CustomResourceDefinition: it must be structural. Paths and texts are Kubernetes'.

    structure_problems(schema, "spec.validation.openAPIV3Schema")

Rules for this file:
- The schema is untrusted: any JSON value gives problems, never an exception.
- Value validations (anyOf, oneOf, allOf, not) may only restrict values; types belong to the structure around them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import INT_OR_STRING, MAX_DEPTH, compile_check, json_text
from trainyard.schema.patterns import PatternError, compiled_pattern
from trainyard.schema.pruning_and_defaulting import EMBEDDED, PRESERVE, compile_prune

TYPES = ("array", "boolean", "integer", "number", "object", "string")
LIST_TYPE, LIST_KEYS, MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
VALIDATIONS = "x-kubernetes-validations"
UNSUPPORTED = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id")
_ROOT_FIELD_TYPES = {"apiVersion": "string", "kind": "string", "metadata": "object"}
_METADATA_KEYWORDS = {"type", "properties", "title", "description", "default"}
FORBIDDEN_IN_VALUE_VALIDATIONS = (
    *("type", "title", "description", "default", "nullable", "additionalProperties", PRESERVE, EMBEDDED),
    *(INT_OR_STRING, LIST_TYPE, LIST_KEYS, MAP_TYPE, VALIDATIONS),
)
INT_OR_STRING_TYPES = ({"type": "integer"}, {"type": "string"})


def structure_problems(schema: Any, path: str) -> list[Problem]:
    """The problems for which an API server rejects a CRD with this schema; `path` is the path of the schema in it."""
    if not isinstance(schema, dict):
        return [Problem(path, f"Invalid value: {json_text(schema)}: must be an object")]
    try:
        problems = list(_root_problems(schema, path))
        return problems or list(_default_problems(schema, path))
    except (AttributeError, TypeError, ValueError) as error:  # such as `properties: 5`
        return [Problem(path, f"Invalid value: the schema is malformed: {error}")]


def _root_problems(schema: Json, path: str) -> Iterator[Problem]:
    kind = schema.get("type")
    if not kind:
        yield Problem(f"{path}.type", "Required value: must not be empty at the root")
    elif kind != "object":
        yield Problem(f"{path}.type", f"Invalid value: {json_text(kind)}: must be object at the root")
    meta = (schema.get("properties") or {}).get("metadata")
    only_names = isinstance(meta, dict) and (meta.get("properties") or {}).keys() <= {"name", "generateName"}
    if isinstance(meta, dict) and not (only_names and meta.keys() <= _METADATA_KEYWORDS):
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield Problem(f"{path}.properties[metadata]", f"Forbidden: {text}")
    for name, required_type in _ROOT_FIELD_TYPES.items():
        field = (schema.get("properties") or {}).get(name)
        if isinstance(field, dict) and field.get("type") in TYPES and field["type"] != required_type:
            text = f"Invalid value: {json_text(field['type'])}: must be {required_type}"
            yield Problem(f"{path}.properties[{name}].type", text)
    if schema.get("nullable") is True:
        yield Problem(f"{path}.nullable", "Forbidden: nullable cannot be true at the root")
    yield from _schema_problems(schema, path, 0)


def _schema_problems(schema: Any, path: str, level: int) -> Iterator[Problem]:
    if level > MAX_DEPTH or not isinstance(schema, dict):
        yield Problem(path, "Invalid value: must be a schema that is not nested more deeply than the server allows")
        return
    yield from _type_problems(schema, path, level)
    yield from _keyword_problems(schema, path)
    yield from _list_problems(schema, path)
    yield from _map_problems(schema, path)
    properties, items = schema.get("properties") or {}, schema.get("items")
    additional = schema.get("additionalProperties")
    if additional is not None and properties and additional is not True:
        yield Problem(
            f"{path}.additionalProperties", "Forbidden: additionalProperties and properties are mutual exclusive"
        )
    for name, field in properties.items():
        yield from _schema_problems(field, f"{path}.properties[{name}]", level + 1)
    if isinstance(additional, dict):
        yield from _schema_problems(additional, f"{path}.additionalProperties", level + 1)
    if isinstance(items, dict):
        yield from _schema_problems(items, f"{path}.items", level + 1)
    for validation_path, validation in _value_validations(schema, path):
        yield from _value_validation_problems(validation, validation_path, schema.get(INT_OR_STRING) is True, level + 1)


def _type_problems(schema: Json, path: str, level: int) -> Iterator[Problem]:
    kind = schema.get("type")
    if kind and kind not in TYPES:
        supported = ", ".join(f'"{name}"' for name in TYPES)
        yield Problem(f"{path}.type", f"Unsupported value: {json_text(kind)}: supported values: {supported}")
    needs_no_type = schema.get(INT_OR_STRING) is True or schema.get(PRESERVE) is True
    if not kind and not needs_no_type and level and "$ref" not in schema:
        places = "array items" if path.endswith(".items") else "object fields"
        yield Problem(f"{path}.type", f"Required value: must not be empty for specified {places}")


def _keyword_problems(schema: Json, path: str) -> Iterator[Problem]:
    for keyword in UNSUPPORTED:
        if keyword in schema:
            yield Problem(f"{path}.{keyword}", f"Forbidden: {keyword} is not supported")
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
            yield Problem(f"{path}.pattern", f"Invalid value: {json_text(pattern)}: {text}")


def _list_problems(schema: Json, path: str) -> Iterator[Problem]:
    items, kind, list_type = schema.get("items"), schema.get("type"), schema.get(LIST_TYPE)
    if kind == "array" and items is None:
        yield Problem(f"{path}.items", "Required value: must be specified")
    if isinstance(items, list):
        yield Problem(f"{path}.items", "Forbidden: items must be a schema object and not an array")
    if list_type is None:
        return
    if list_type not in ("atomic", "set", "map"):
        text = f'Unsupported value: {json_text(list_type)}: supported values: "atomic", "set", "map"'
        yield Problem(f"{path}.{LIST_TYPE}", text)
    if kind != "array":
        yield Problem(f"{path}.type", f"Invalid value: {json_text(kind)}: must be array if {LIST_TYPE} is specified")
    if (
        list_type == "set"
        and isinstance(items, dict)
        and items.get("type") == "object"
        and items.get(MAP_TYPE) != "atomic"
    ):
        text = f"Invalid value: {json_text(items.get(MAP_TYPE))}: must be atomic as item of a list with {LIST_TYPE}=set"
        yield Problem(f"{path}.items.{MAP_TYPE}", text)
    if list_type == "map":
        yield from _map_key_problems(schema, items if isinstance(items, dict) else {}, path)


def _map_problems(schema: Json, path: str) -> Iterator[Problem]:
    kind, map_type = schema.get("type"), schema.get(MAP_TYPE)
    if map_type is None:
        return
    if map_type not in ("atomic", "granular"):
        text = f'Unsupported value: {json_text(map_type)}: supported values: "atomic", "granular"'
        yield Problem(f"{path}.{MAP_TYPE}", text)
    if kind != "object":
        yield Problem(f"{path}.type", f"Invalid value: {json_text(kind)}: must be object if {MAP_TYPE} is specified")


def _map_key_problems(schema: Json, items: Json, path: str) -> Iterator[Problem]:
    keys, properties = schema.get(LIST_KEYS) or [], items.get("properties") or {}
    if not keys:
        yield Problem(f"{path}.{LIST_KEYS}", f"Required value: must not be empty if {LIST_TYPE} is map")
    if any(key not in properties for key in keys):
        yield Problem(
            f"{path}.{LIST_KEYS}", f"Invalid value: {json_text(keys)}: entries must all be names of item properties"
        )
        return
    for key in keys:
        if key not in (items.get("required") or ()) and "default" not in properties[key]:
            text = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            yield Problem(f"{path}.items.properties[{key}].default", f"Required value: {text}")


def _value_validations(schema: Json, path: str) -> Iterator[tuple[str, Any]]:
    """The subschemas of allOf, anyOf, oneOf and not, with their paths."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, validation in enumerate(schema.get(keyword) or ()):
            yield f"{path}.{keyword}[{index}]", validation
    if schema.get("not") is not None:
        yield f"{path}.not", schema["not"]


def _value_validation_problems(validation: Any, path: str, int_or_string: bool, level: int) -> Iterator[Problem]:
    """A value validation has no keyword that belongs to the structure (FORBIDDEN_IN_VALUE_VALIDATIONS)."""
    if level > MAX_DEPTH or not isinstance(validation, dict):
        yield Problem(path, "Invalid value: must be a schema")
        return
    if not (int_or_string and validation in INT_OR_STRING_TYPES):
        for keyword in FORBIDDEN_IN_VALUE_VALIDATIONS:
            if keyword in validation and not (int_or_string and validation.get("anyOf") == list(INT_OR_STRING_TYPES)):
                yield Problem(f"{path}.{keyword}", "Forbidden: must be empty to be structural")
    for name, field in (validation.get("properties") or {}).items():
        yield from _value_validation_problems(field, f"{path}.properties[{name}]", False, level + 1)
    if isinstance(validation.get("items"), dict):
        yield from _value_validation_problems(validation["items"], f"{path}.items", False, level + 1)
    for nested_path, nested in _value_validations(validation, path):
        yield from _value_validation_problems(nested, nested_path, int_or_string, level + 1)


def _default_problems(schema: Json, path: str) -> Iterator[Problem]:
    """A default must be valid against its schema and have no fields that are pruned."""
    if schema.get("default") is not None:
        default = schema["default"]
        problems: list[Problem] = []
        compile_check(schema)(default, "", problems)
        prune = compile_prune(schema)
        if prune is not None and prune(default) is not default:
            problems.append(Problem("", f"Invalid value: {json_text(default)}: must not have unknown fields"))
        yield from (Problem(f"{path}.default", problem.text) for problem in problems)
    for name, field in (schema.get("properties") or {}).items():
        yield from _default_problems(field, f"{path}.properties[{name}]")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _default_problems(schema[keyword], f"{path}.{keyword}")
