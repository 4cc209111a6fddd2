"""JSON merge patches between two values we know. Pure.

A merge patch keeps what it does not name, so a key that has vanished must be named with null, at every depth.
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json


def merge_patch(old: Json, new: Json) -> Json:
    """The smallest merge patch that makes `new` out of `old`. A null inside `new` means that the key is not there."""
    patch: Json = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or (key in old and _same(before, value)):
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    return patch


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1 there."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
