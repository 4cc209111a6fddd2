"""The fields in which two JSON values differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def differing_paths(value: Any, other: Any, path: str = "") -> Iterator[str]:
    """The paths of fields of `value` or `other` that are different: spec.containers[0].image."""
    if isinstance(value, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*value, *other)):
            yield from differing_paths(value.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for index, (item, other_item) in enumerate(zip(value, other, strict=True)):
            yield from differing_paths(item, other_item, f"{path}[{index}]")
    elif value != other:
        yield path
