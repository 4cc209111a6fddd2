"""Checks that a schema is valid, once, before functions are compiled from it. The schema is untrusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import MAX_DEPTH, TYPE_TEXTS, field_path, json_text
from trainyard.schema.patterns import PatternError, compiled_pattern


def check_schema(schema: Any, path: str = "", level: int = 0) -> None:
    """Raises ValueError, which names the place, when the schema at path `path` or a subschema of it is invalid."""
    place = path or "the schema"
    if level > MAX_DEPTH:
        raise ValueError(f"{place} is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(schema, dict):
        raise ValueError(f"{place} is not a schema: {json_text(schema)}")
    kind = schema.get("type")
    if kind is not None and kind not in TYPE_TEXTS:
        raise ValueError(f"{place}: unknown type {kind!r}; write one of {', '.join(TYPE_TEXTS)}")
    if pattern := schema.get("pattern"):
        try:
            compiled_pattern(pattern)
        except PatternError as error:
            raise ValueError(f"{place}: pattern {pattern!r} is not a regular expression: {error}") from None
    for keyword in ("required", "enum", "x-kubernetes-list-map-keys"):
        iter(schema.get(keyword) or ())  # TypeError, which the caller handles, when it is no list
    for subpath, subschema in _subschemas(schema, path):
        check_schema(subschema, subpath, level + 1)


def _subschemas(schema: Json, where: str) -> Iterator[tuple[str, Any]]:
    for name, field in (schema.get("properties") or {}).items():
        if not _is_only_typed(field):
            yield field_path(where, name), field
    if "items" in schema and not _is_only_typed(schema["items"]):
        yield f"{where}.items", schema["items"]
    for keyword, segment in (("additionalProperties", "*"), ("not", "not")):
        if isinstance(schema.get(keyword), dict):
            yield f"{where}.{segment}", schema[keyword]
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, subschema in enumerate(schema.get(keyword) or ()):
            yield f"{where}.{keyword}[{index}]", subschema


_TYPE_KEYWORDS = {"type", "nullable", "description"}


def _is_only_typed(schema: Any) -> bool:
    """Whether the schema is no more than a valid type. Most subschemas are, and need no further check."""
    return schema.__class__ is dict and schema.keys() <= _TYPE_KEYWORDS and schema.get("type") in TYPE_TEXTS
