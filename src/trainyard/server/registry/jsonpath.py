"""The subset of JSONPath for printer columns: `.spec.x`, `.spec.list[0]`, `[-1:]`, `[*]`, `['a.b']` and
`[?(@.type=="Ready")]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trainyard.objects.patterns import lazy_pattern

Find = Callable[[Any], list[Any]]

_STEP = lazy_pattern(
    r"\.(?P<name>(?:[A-Za-z0-9_\-/]|\\.)+)"
    r"|\[(?P<index>-?\d+|\*)\]"
    r"|\[(?P<start>-?\d*):(?P<end>-?\d*)\]"
    r"|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]"
    r"|\[\?\(@\.(?P<left>[A-Za-z0-9_\-]+)\s*==\s*(?P<mark>['\"])(?P<right>.*?)(?P=mark)\)\]"
)


def compile_path(path: str) -> Find:
    """A function that returns all values at that path. Raises ValueError for an unsupported path."""
    if not isinstance(path, str) or not path.startswith((".", "[", "{")) or len(path) > 1000:
        raise ValueError(f"{str(path)[:80]!r} is no JSON path; write it like .spec.replicas")
    text = path[1:-1] if path.startswith("{") else path
    steps: list[Find] = []
    position = 0
    while position < len(text) and text != ".":
        match = _STEP.match(text, position)
        if not match:
            raise ValueError(f"cannot read the JSON path {path[:80]!r} at {text[position:][:40]!r}")
        steps.append(_step(match))
        position = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [part for value in values for part in step(value)]
        return values

    return find


def _step(match: re.Match[str]) -> Find:
    if match["index"] == "*":
        return lambda value: (
            list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        )
    if match["index"] is not None:
        index = int(match["index"])
        return lambda value: [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []
    if match["start"] is not None:
        part = slice(*(int(bound) if bound else None for bound in (match["start"], match["end"])))
        return lambda value: value[part] if isinstance(value, list) else []
    if match["left"] is not None:
        left, right = match["left"], match["right"]
        return lambda value: (
            [item for item in value if isinstance(item, dict) and item.get(left) == right]
            if isinstance(value, list)
            else []
        )
    name = match["key"] if match["key"] is not None else match["name"].replace("\\.", ".")
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []
