"""Equality of JSON values, which decides whether an update changes anything."""

from __future__ import annotations

from typing import Any


def json_equal(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 is not true. The depth of the values was checked at decoding."""
    return bool(a == b) and _alike(a, b)  # the first test usually fails, and is fast


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(name in b and _alike(part, b[name]) for name, part in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)
