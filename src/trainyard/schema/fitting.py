"""A quick look that knows only yes: does a value fit the schema without any problem?

Nearly every object does, and a pod template has a thousand places where it might not.

Rules for this file:
- True is the check's empty answer. False means no more than: let the check look.
- No paths and no texts are made here. What is not looked at often is left to the check itself.
- A part of the schema is compiled when a value has it for the first time; most are never met.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import INT_OR_STRING, compile_check, takes_null
from trainyard.schema.shaping import PRESERVE

Fit = Callable[[Any], bool]

_SILENT = {"type", "nullable", "description", "default", PRESERVE, "x-kubernetes-validations"}
_KNOWN = {
    "object": _SILENT | {"properties", "additionalProperties", "required", "maxProperties"},
    "array": _SILENT | {"items", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
}
_PLAIN = {"string": str, "boolean": bool}


def compile_fit(schema: Json) -> Fit:
    """Whether a value fits; the schema has been examined."""
    kind, words = schema.get("type", ""), schema.keys()
    null = takes_null(schema)
    if words <= _SILENT and kind in _PLAIN:
        wanted = _PLAIN[kind]
        return lambda value: value.__class__ is wanted or (null and value is None)
    if words <= _SILENT and kind == "integer":
        return lambda value: (value.__class__ is int and -(2**63) <= value < 2**63) or (null and value is None)
    if words <= _SILENT and not kind and schema.get(PRESERVE) is True:
        return _anything
    if words <= _SILENT | {INT_OR_STRING} and not kind and schema.get(INT_OR_STRING) is True:
        return lambda value: value.__class__ is str or (null and value is None)
    if words <= _KNOWN.get(kind, set()):
        return _object(schema, null) if kind == "object" else _list(schema, null)
    return _asked(schema)


def _anything(value: Any) -> bool:
    return True


def _asked(schema: Json) -> Fit:
    check = compile_check(schema)

    def fits(value: Any) -> bool:
        found: list[Problem] = []
        check(value, "", found)
        return not found

    return fits


class _Parts(dict[str, Fit]):
    """The fits of an object's fields, each compiled when it is first met; every other field fits."""

    def __init__(self, properties: Json, others: Any) -> None:
        super().__init__()
        self._properties = properties
        self._others = compile_fit(others) if isinstance(others, dict) else _anything

    def __missing__(self, name: str) -> Fit:
        schema = self._properties.get(name)
        if schema is None:  # not kept: there is no end of names
            return self._others
        fit = self[name] = compile_fit(schema)
        return fit


def _object(schema: Json, null: bool) -> Fit:
    properties: Json = schema.get("properties") or {}
    required = tuple(schema.get("required") or ())
    most = schema.get("maxProperties")
    plain = {
        name: _PLAIN[part["type"]]
        for name, part in properties.items()
        if part.get("type") in _PLAIN and part.keys() <= _SILENT
    }
    parts = _Parts(properties, schema.get("additionalProperties"))

    def fits(value: Any) -> bool:
        if value.__class__ is not dict:
            return null and value is None
        if most is not None and len(value) > most:
            return False
        for name in required:
            if name not in value:
                return False
        for name, part in value.items():
            # A plain field of the right type is most of what there is, and costs no call.
            if part.__class__ is not plain.get(name) and not parts[name](part):
                return False
        return True

    return fits


def _list(schema: Json, null: bool) -> Fit:
    item = compile_fit(schema["items"]) if "items" in schema else _anything
    most = schema.get("maxItems")
    keys = list(schema.get("x-kubernetes-list-map-keys") or ())
    form = schema.get("x-kubernetes-list-type", "atomic")
    if form not in ("atomic", "map") or (form == "map" and len(keys) != 1):
        return _asked(schema)

    def fits(value: Any) -> bool:
        if value.__class__ is not list:
            return null and value is None
        if (most is not None and len(value) > most) or not all(map(item, value)):
            return False
        if form == "map" and len(value) > 1:
            names = [one.get(keys[0]) if one.__class__ is dict else None for one in value]
            return None not in names and len(set(map(repr, names))) == len(names)
        return True

    return fits
