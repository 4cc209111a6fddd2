"""Generates structural schemas (the `openAPIV3Schema` of a CRD) from msgspec structs.

Rules for this file:
- Nested structs are inlined; there is no `$ref`. A struct that contains itself has no such schema: ValueError.
- `Optional` means "may be absent". Null is allowed only where the annotation has
  `Annotated[T | None, Meta(extra_json_schema={"nullable": True})]`.
- `extra_json_schema` is merged last and overrides other keywords: `x-kubernetes-*` belongs there.
- The docstring of a struct becomes the `description` of its schema, which users see.
- A struct default becomes a schema default only when it is a JSON scalar. None, UNSET and factories do not.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect as types

from trainyard.objects import Json

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"

_NUMBER_KEYWORDS = (
    ("ge", "minimum"),
    ("gt", "minimum"),
    ("le", "maximum"),
    ("lt", "maximum"),
    ("multiple_of", "multipleOf"),
)


def from_struct(struct: type) -> Json:
    """The structural OpenAPI v3 schema of a msgspec struct. Raises ValueError for a type that has none."""
    return _schema(_type_info(struct), ())


_type_infos: dict[type, types.Type] = {}


def read_ahead(structs: Iterable[type]) -> None:
    """Read the types of these structs for later calls of `from_struct`. Reading the types takes most of its time, and
    half as long for structs with the same parts when they are read together."""
    unread = [struct for struct in structs if struct not in _type_infos]
    _type_infos.update(zip(unread, types.multi_type_info(unread), strict=True))


def _type_info(struct: type) -> types.Type:
    if struct not in _type_infos:
        read_ahead([struct])
    return _type_infos[struct]


def _schema(node: types.Type, ancestors: tuple[type, ...]) -> Json:
    """The schema of a type; `ancestors` are the structs that contain it."""
    if isinstance(node, types.Metadata):
        return {**_schema(node.type, ancestors), **(node.extra_json_schema or {})}
    if isinstance(node, types.StructType):
        return _struct_schema(node, ancestors)
    if isinstance(node, types.UnionType):
        return _union_schema(node, ancestors)
    if isinstance(node, types.DictType):
        return _map_schema(node, ancestors)
    if isinstance(node, types.ListType | types.VarTupleType | types.SetType | types.FrozenSetType):
        items = _schema(node.item_type, ancestors)
        return _without_none(
            {"type": "array", "items": items, "minItems": node.min_length, "maxItems": node.max_length}
        )
    if isinstance(node, types.AnyType | types.RawType):
        return {PRESERVE: True}
    return _scalar_schema(node)


def _scalar_schema(node: types.Type) -> Json:
    if isinstance(node, types.BoolType):
        return {"type": "boolean"}
    if isinstance(node, types.IntType):
        return {"type": "integer", **_limits(node)}
    if isinstance(node, types.FloatType):
        return {"type": "number", **_limits(node)}
    if isinstance(node, types.StrType):
        lengths = {"minLength": node.min_length, "maxLength": node.max_length, "pattern": node.pattern}
        return _without_none({"type": "string", **lengths})
    if isinstance(node, types.LiteralType):
        return _enum(list(node.values))
    if isinstance(node, types.EnumType):
        return _enum([member.value for member in node.cls])
    if isinstance(node, types.DateTimeType):
        return {"type": "string", "format": "date-time"}
    raise ValueError(
        f"{type(node).__name__} has no structural schema; use a str, int, float, bool, list, dict or struct"
    )


def _enum(values: list[Any]) -> Json:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"type": "integer", "enum": values}


def _limits(node: types.IntType | types.FloatType) -> Json:
    limits: Json = {}
    for attribute, keyword in _NUMBER_KEYWORDS:
        if (limit := getattr(node, attribute)) is not None:
            limits[keyword] = limit
            if attribute in ("gt", "lt"):
                limits["exclusive" + keyword.capitalize()] = True
    return limits


def _without_none(schema: Json) -> Json:
    return {keyword: value for keyword, value in schema.items() if value is not None}


def _union_schema(node: types.UnionType, ancestors: tuple[type, ...]) -> Json:
    members = [member for member in node.types if not isinstance(member, types.NoneType)]
    if len(members) == 1:
        return _schema(members[0], ancestors)
    bare = [member.type if isinstance(member, types.Metadata) else member for member in members]
    if len(bare) == 2 and {type(member) for member in bare} == {types.IntType, types.StrType}:
        extra = {keyword: value for member in members for keyword, value in _extra_schema(member).items()}
        return {INT_OR_STRING: True, **extra}
    raise ValueError(f"a union of {len(members)} types has no structural schema; only int | str has one")


def _extra_schema(node: types.Type) -> Json:
    return (node.extra_json_schema or {}) if isinstance(node, types.Metadata) else {}


def _map_schema(node: types.DictType, ancestors: tuple[type, ...]) -> Json:
    values = _schema(node.value_type, ancestors)
    counts = _without_none({"minProperties": node.min_length, "maxProperties": node.max_length})
    if values == {PRESERVE: True}:
        return {"type": "object", PRESERVE: True, **counts}
    return {"type": "object", "additionalProperties": values, **counts}


def _struct_schema(node: types.StructType, ancestors: tuple[type, ...]) -> Json:
    if node.cls in ancestors:
        raise ValueError(f"{node.cls.__name__} contains itself; a structural schema must be finite")
    properties: Json = {}
    required: list[str] = []
    for field in node.fields:
        properties[field.encode_name] = _with_default(_schema(field.type, (*ancestors, node.cls)), field.default)
        if field.required:
            required.append(field.encode_name)
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if docstring := node.cls.__dict__.get("__doc__"):
        schema["description"] = inspect.cleandoc(docstring)
    return schema


def _with_default(schema: Json, default: Any) -> Json:
    if isinstance(default, enum.Enum):
        default = default.value
    if default is msgspec.NODEFAULT or "default" in schema or not isinstance(default, bool | int | float | str):
        return schema
    return {**schema, "default": default}
