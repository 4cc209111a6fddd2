"""The small JSONPath of printer columns: `.spec.x`, `.spec.list[0]`, `[*]`, `['a.b']`, `[?(@.type=="Ready")]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Find = Callable[[Any], list[Any]]

_STEP = re.compile(
    r"\.(?P<name>(?:[A-Za-z0-9_\-/]|\\.)+)"
    r"|\[(?P<index>-?\d+|\*)\]"
    r"|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]"
    r"|\[\?\(@\.(?P<left>[A-Za-z0-9_\-]+)\s*==\s*(?P<mark>['\"])(?P<right>.*?)(?P=mark)\)\]"
)


def compile_path(path: str) -> Find:
    """A function that finds all values at that path. Raises ValueError for a path it cannot read."""
    if not isinstance(path, str) or not path.startswith((".", "[", "{")) or len(path) > 1000:
        raise ValueError(f"{str(path)[:80]!r} is no JSON path; write it like .spec.replicas")
    text = path[1:-1] if path.startswith("{") else path
    steps: list[Find] = []
    at = 0
    while at < len(text) and text != ".":
        found = _STEP.match(text, at)
        if not found:
            raise ValueError(f"cannot read the JSON path {path[:80]!r} at {text[at:][:40]!r}")
        steps.append(_step(found))
        at = found.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [part for one in values for part in step(one)]
        return values

    return find


def _step(found: re.Match[str]) -> Find:
    if found["index"] == "*":
        return lambda value: (
            list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        )
    if found["index"] is not None:
        index = int(found["index"])
        return lambda value: [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []
    if found["left"] is not None:
        left, right = found["left"], found["right"]
        return lambda value: (
            [one for one in value if isinstance(one, dict) and one.get(left) == right]
            if isinstance(value, list)
            else []
        )
    name = found["key"] if found["key"] is not None else found["name"].replace("\\.", ".")
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []
