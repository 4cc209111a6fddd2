"""Whether a schema is one: asked once, of every part, before anything is compiled from it. It may be anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import DEPTH, WORDS, below, shown
from trainyard.schema.patterns import PatternError, compiled_pattern


def examine(schema: Any, where: str = "", level: int = 0) -> None:
    """Raises ValueError that names the place of what is wrong."""
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
    for word in ("required", "enum", "x-kubernetes-list-map-keys"):
        iter(schema.get(word) or ())
    for name, part in _parts(schema, where):
        examine(part, name, level + 1)


def _parts(schema: Json, where: str) -> Iterator[tuple[str, Any]]:
    for name, part in (schema.get("properties") or {}).items():
        if not _is_plain(part):
            yield below(where, name), part
    if "items" in schema and not _is_plain(schema["items"]):
        yield f"{where}.items", schema["items"]
    for word, place in (("additionalProperties", "*"), ("not", "not")):
        if isinstance(schema.get(word), dict):
            yield f"{where}.{place}", schema[word]
    for word in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(word) or ()):
            yield f"{where}.{word}[{index}]", part


_PLAIN = {"type", "nullable", "description"}


def _is_plain(part: Any) -> bool:
    """Most parts are no more than a type, and there is nothing to ask of them."""
    return part.__class__ is dict and part.keys() <= _PLAIN and part.get("type") in WORDS
