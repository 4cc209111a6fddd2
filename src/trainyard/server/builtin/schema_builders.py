"""Helpers for the schemas and defaults of built-in resources. The schemas preserve unknown fields, so newer fields
are stored."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.schema import Schema

STRING: Json = {"type": "string", "nullable": True}
BOOLEAN: Json = {"type": "boolean", "nullable": True}
INTEGER: Json = {"type": "integer", "nullable": True}
COUNT: Json = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "nullable": True}
MIXED: Json = {"x-kubernetes-int-or-string": True, "nullable": True}
FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True}
STRINGS: Json = {"type": "array", "items": {"type": "string"}, "nullable": True}
PAIRS: Json = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}


def obj(required: tuple[str, ...] = (), **fields: Json) -> Json:
    """The schema of an object with these fields; unknown fields are preserved."""
    return {**FREE, "properties": fields, **({"required": list(required)} if required else {})}


def not_nullable(schema: Json) -> Json:
    """The schema without `nullable`: null is invalid."""
    return {name: part for name, part in schema.items() if name != "nullable"}


def list_of(items: Json, key: str = "", min_items: int = 0) -> Json:
    """The schema of a list with at least `min_items` items. With `key`, it is a map list with that key field."""
    schema: Json = {"type": "array", "items": not_nullable(items), "nullable": not min_items}
    if key:
        schema.update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
    if min_items:
        schema["minItems"] = min_items
    return schema


def one_of(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


def resource_schema(spec: Json, required: bool = True, **fields: Json) -> Schema:
    """The schema of a resource with this spec; `required`: the spec must be set."""
    names = ("spec",) if required else ()
    return Schema.trusted(obj(names, spec=not_nullable(spec) if required else spec, status=FREE, **fields))


def set_defaults(target: Json, **defaults: Any) -> None:
    """Sets the fields that are missing or null."""
    for name, value in defaults.items():
        if target.get(name) is None:
            target[name] = value


def set_defaults_for_zero(target: Json, **defaults: Any) -> None:
    """Sets the fields that are missing, null, "" or 0, as kube-apiserver does for Go fields without a pointer."""
    for name, value in defaults.items():
        if not target.get(name):
            target[name] = value


def string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
