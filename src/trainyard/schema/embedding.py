"""Where an object has other objects inside (x-kubernetes-embedded-resource).

Each compiler returns None when there is none below its schema, so that most schemas cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import below
from trainyard.schema.shaping import EMBEDDED

Found = Iterator[tuple[str, Json]]
Look = Callable[[Any, str], Found]


def compile_embedded(schema: Json) -> Look | None:
    """Each embedded object of a value, with its path."""
    itself = schema.get(EMBEDDED) is True
    items, more = (compile_embedded(schema[name]) if isinstance(schema.get(name), dict) else None for name in _INSIDE)
    properties: Json = schema.get("properties") or {}
    fields = {name: found for name, part in properties.items() if (found := compile_embedded(part))}
    if not (itself or items or more or fields):
        return None

    def look(value: Any, path: str) -> Found:
        if isinstance(value, list) and items:
            for index, part in enumerate(value):
                yield from items(part, f"{path}[{index}]")
        if not isinstance(value, dict):
            return
        if itself:
            yield path, value
        for name, part in value.items():
            if inside := fields.get(name, more):
                yield from inside(part, below(path, name))

    return look


_INSIDE = ("items", "additionalProperties")
