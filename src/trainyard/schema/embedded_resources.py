"""Finding the embedded objects of an object (x-kubernetes-embedded-resource).

`compile_embedded` returns None for a schema without embedded objects, so that most schemas cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import field_path
from trainyard.schema.pruning_and_defaulting import EMBEDDED

EmbeddedObjects = Iterator[tuple[str, Json]]
FindEmbedded = Callable[[Any, str], EmbeddedObjects]


def compile_embedded(schema: Json) -> FindEmbedded | None:
    """A function (value, path) that yields each embedded object of the value with its path."""
    is_embedded = schema.get(EMBEDDED) is True
    find_in_item, find_in_additional = (
        compile_embedded(schema[keyword]) if isinstance(schema.get(keyword), dict) else None
        for keyword in ("items", "additionalProperties")
    )
    properties: Json = schema.get("properties") or {}
    find_in_field = {name: find for name, field in properties.items() if (find := compile_embedded(field))}
    if not (is_embedded or find_in_item or find_in_additional or find_in_field):
        return None

    def find_embedded(value: Any, path: str) -> EmbeddedObjects:
        if isinstance(value, list) and find_in_item:
            for index, item in enumerate(value):
                yield from find_in_item(item, f"{path}[{index}]")
        if not isinstance(value, dict):
            return
        if is_embedded:
            yield path, value
        for name, field_value in value.items():
            if find := find_in_field.get(name, find_in_additional):
                yield from find(field_value, field_path(path, name))

    return find_embedded
