"""The fast path of validation: a function that returns True when a value certainly has no problem.

Nearly every object is valid, and the full check of a pod template is expensive: it has about a thousand fields.

Rules for this file:
- True means that the check would append no problem. False means only that the caller has to run the check.
- The functions here build no paths and no texts. Keywords that are rare are left to the check.
- A subschema is compiled when a value first has its field; values have only a few of all fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import INT_OR_STRING, allows_null, compile_check
from trainyard.schema.pruning_and_defaulting import PRESERVE

IsValid = Callable[[Any], bool]

_TYPE_KEYWORDS = {"type", "nullable", "description", "default", PRESERVE, "x-kubernetes-validations"}
_KEYWORDS = {
    "object": _TYPE_KEYWORDS | {"properties", "additionalProperties", "required", "maxProperties"},
    "array": _TYPE_KEYWORDS | {"items", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
}
_PYTHON_TYPES = {"string": str, "boolean": bool}


def compile_is_valid(schema: Json) -> IsValid:
    """The fast path of a schema that is known to be valid (schema_validity.py)."""
    kind, keywords = schema.get("type", ""), schema.keys()
    nullable = allows_null(schema)
    if keywords <= _TYPE_KEYWORDS and kind in _PYTHON_TYPES:
        python_type = _PYTHON_TYPES[kind]
        return lambda value: value.__class__ is python_type or (nullable and value is None)
    if keywords <= _TYPE_KEYWORDS and kind == "integer":
        return lambda value: (value.__class__ is int and -(2**63) <= value < 2**63) or (nullable and value is None)
    if keywords <= _TYPE_KEYWORDS and not kind and schema.get(PRESERVE) is True:
        return _always_valid
    if keywords <= _TYPE_KEYWORDS | {INT_OR_STRING} and not kind and schema.get(INT_OR_STRING) is True:
        return lambda value: value.__class__ is str or (nullable and value is None)
    if keywords <= _KEYWORDS.get(kind, set()):
        return _compile_object(schema, nullable) if kind == "object" else _compile_list(schema, nullable)
    return _full_check(schema)


def _always_valid(value: Any) -> bool:
    return True


def _full_check(schema: Json) -> IsValid:
    check = compile_check(schema)

    def fits(value: Any) -> bool:
        problems: list[Problem] = []
        check(value, "", problems)
        return not problems

    return fits


class _FieldFits(dict[str, IsValid]):
    """Field name -> fast path, compiled at the first lookup. Fields without a schema are valid."""

    def __init__(self, properties: Json, additional: Any) -> None:
        super().__init__()
        self._properties = properties
        self._additional = compile_is_valid(additional) if isinstance(additional, dict) else _always_valid

    def __missing__(self, name: str) -> IsValid:
        schema = self._properties.get(name)
        if schema is None:  # not stored under this name: the number of names is unbounded
            return self._additional
        fit = self[name] = compile_is_valid(schema)
        return fit


def _compile_object(schema: Json, nullable: bool) -> IsValid:
    properties: Json = schema.get("properties") or {}
    required = tuple(schema.get("required") or ())
    max_properties = schema.get("maxProperties")
    scalar_types = {
        name: _PYTHON_TYPES[field["type"]]
        for name, field in properties.items()
        if field.get("type") in _PYTHON_TYPES and field.keys() <= _TYPE_KEYWORDS
    }
    field_fits = _FieldFits(properties, schema.get("additionalProperties"))

    def fits(value: Any) -> bool:
        if value.__class__ is not dict:
            return nullable and value is None
        if max_properties is not None and len(value) > max_properties:
            return False
        for name in required:
            if name not in value:
                return False
        for name, field_value in value.items():
            # Most fields are strings and booleans without further keywords: these need no call.
            if field_value.__class__ is not scalar_types.get(name) and not field_fits[name](field_value):
                return False
        return True

    return fits


def _compile_list(schema: Json, nullable: bool) -> IsValid:
    item_fits = compile_is_valid(schema["items"]) if "items" in schema else _always_valid
    max_items = schema.get("maxItems")
    keys = list(schema.get("x-kubernetes-list-map-keys") or ())
    list_type = schema.get("x-kubernetes-list-type", "atomic")
    if list_type not in ("atomic", "map") or (list_type == "map" and len(keys) != 1):
        return _full_check(schema)

    def fits(value: Any) -> bool:
        if value.__class__ is not list:
            return nullable and value is None
        if (max_items is not None and len(value) > max_items) or not all(map(item_fits, value)):
            return False
        if list_type == "map" and len(value) > 1:
            key_values = [item.get(keys[0]) if item.__class__ is dict else None for item in value]
            return None not in key_values and len(set(map(repr, key_values))) == len(key_values)
        return True

    return fits
