"""Checks that a schema is valid, once, before functions are compiled from it. The schema is untrusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import DEPTH, WORDS, below, shown
from trainyard.schema.patterns import PatternError, compiled_pattern


def examine(schema: Any, where: str = "", level: int = 0) -> None:
    """Raises ValueError, which names the place, when the schema at path `where` or a subschema of it is invalid."""
    place = where or "the schema"
    if level > DEPTH:
        raise ValueError(f"{place} is nested deeper than {DEPTH} levels")
    if not isinstance(schema, dict):
        raise ValueError(f"{place} is no schema: {shown(schema)}")
    kind = schema.get("type")
    if kind is not None and kind not in WORDS:
        raise ValueError(f"{place}: unknown type {kind!r}; write one of {', '.join(WORDS)}")
    if pattern := schema.get("pattern"):
        try:
            compiled_pattern(pattern)
        except PatternError as error:
            raise ValueError(f"{place}: pattern {pattern!r} is no regular expression: {error}") from None
    for keyword in ("required", "enum", "x-kubernetes-list-map-keys"):
        iter(schema.get(keyword) or ())  # TypeError, which the caller handles, when it is no list
    for path, subschema in _subschemas(schema, where):
        examine(subschema, path, level + 1)


def _subschemas(schema: Json, where: str) -> Iterator[tuple[str, Any]]:
    for name, field in (schema.get("properties") or {}).items():
        if not _is_only_typed(field):
            yield below(where, name), field
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
    return schema.__class__ is dict and schema.keys() <= _TYPE_KEYWORDS and schema.get("type") in WORDS
