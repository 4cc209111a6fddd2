"""From a msgspec struct to a structural schema (the `openAPIV3Schema` of a CRD).

Rules for this file:
- Everything is inlined; there are no references. A struct that contains itself has no such schema and is refused.
- `Optional` means "may be absent". Null is allowed only where the type says so:
  `Annotated[T | None, Meta(extra_json_schema={"nullable": True})]`.
- What `extra_json_schema` says is merged last and wins: `x-kubernetes-*` belongs there.
- A struct default becomes a schema default only when it is a plain JSON scalar. None, UNSET and factories do not.
"""

from __future__ import annotations

import enum
import inspect
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as types

from trainyard.objects import Json

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"

_NUMBER_WORDS = (
    ("ge", "minimum"),
    ("gt", "minimum"),
    ("le", "maximum"),
    ("lt", "maximum"),
    ("multiple_of", "multipleOf"),
)


def from_struct(struct: type) -> Json:
    """The structural OpenAPI v3 schema of a msgspec struct."""
    return _schema(_described(struct), ())


@cache
def _described(struct: type) -> types.Type:
    """To describe a struct takes most of the time, and it never changes."""
    return types.type_info(struct)


def _schema(node: types.Type, within: tuple[type, ...]) -> Json:
    if isinstance(node, types.Metadata):
        return {**_schema(node.type, within), **(node.extra_json_schema or {})}
    if isinstance(node, types.StructType):
        return _struct(node, within)
    if isinstance(node, types.UnionType):
        return _union(node, within)
    if isinstance(node, types.DictType):
        return _mapping(node, within)
    if isinstance(node, types.ListType | types.VarTupleType | types.SetType | types.FrozenSetType):
        items = _schema(node.item_type, within)
        return _present({"type": "array", "items": items, "minItems": node.min_length, "maxItems": node.max_length})
    if isinstance(node, types.AnyType | types.RawType):
        return {PRESERVE: True}
    return _scalar(node)


def _scalar(node: types.Type) -> Json:
    if isinstance(node, types.BoolType):
        return {"type": "boolean"}
    if isinstance(node, types.IntType):
        return {"type": "integer", **_numbers(node)}
    if isinstance(node, types.FloatType):
        return {"type": "number", **_numbers(node)}
    if isinstance(node, types.StrType):
        lengths = {"minLength": node.min_length, "maxLength": node.max_length, "pattern": node.pattern}
        return _present({"type": "string", **lengths})
    if isinstance(node, types.LiteralType):
        return _one_of(list(node.values))
    if isinstance(node, types.EnumType):
        return _one_of([member.value for member in node.cls])
    if isinstance(node, types.DateTimeType):
        return {"type": "string", "format": "date-time"}
    raise ValueError(
        f"{type(node).__name__} has no structural schema; use a str, int, float, bool, list, dict or struct"
    )


def _one_of(values: list[Any]) -> Json:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"type": "integer", "enum": values}


def _numbers(node: types.IntType | types.FloatType) -> Json:
    words: Json = {}
    for attribute, word in _NUMBER_WORDS:
        if (limit := getattr(node, attribute)) is not None:
            words[word] = limit
            if attribute in ("gt", "lt"):
                words["exclusive" + word.capitalize()] = True
    return words


def _present(schema: Json) -> Json:
    return {word: value for word, value in schema.items() if value is not None}


def _union(node: types.UnionType, within: tuple[type, ...]) -> Json:
    kinds = [one for one in node.types if not isinstance(one, types.NoneType)]
    if len(kinds) == 1:
        return _schema(kinds[0], within)
    bare = [one.type if isinstance(one, types.Metadata) else one for one in kinds]
    if len(bare) == 2 and {type(one) for one in bare} == {types.IntType, types.StrType}:
        extra = {word: value for one in kinds for word, value in _extra(one).items()}
        return {INT_OR_STRING: True, **extra}
    raise ValueError(f"a union of {len(kinds)} types has no structural schema; only int | str has one")


def _extra(node: types.Type) -> Json:
    return (node.extra_json_schema or {}) if isinstance(node, types.Metadata) else {}


def _mapping(node: types.DictType, within: tuple[type, ...]) -> Json:
    values = _schema(node.value_type, within)
    counts = _present({"minProperties": node.min_length, "maxProperties": node.max_length})
    if values == {PRESERVE: True}:
        return {"type": "object", PRESERVE: True, **counts}
    return {"type": "object", "additionalProperties": values, **counts}


def _struct(node: types.StructType, within: tuple[type, ...]) -> Json:
    if node.cls in within:
        raise ValueError(f"{node.cls.__name__} contains itself; a structural schema must be finite")
    properties: Json = {}
    required: list[str] = []
    for field in node.fields:
        properties[field.encode_name] = _with_default(_schema(field.type, (*within, node.cls)), field.default)
        if field.required:
            required.append(field.encode_name)
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if text := node.cls.__dict__.get("__doc__"):
        schema["description"] = inspect.cleandoc(text)
    return schema


def _with_default(schema: Json, default: Any) -> Json:
    if isinstance(default, enum.Enum):
        default = default.value
    if default is msgspec.NODEFAULT or "default" in schema or not isinstance(default, bool | int | float | str):
        return schema
    return {**schema, "default": default}
