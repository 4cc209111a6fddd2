"""JSON merge patches (RFC 7386) computed from the old and the new value. Pure.

A merge patch keeps the keys that it does not contain, so a removed key must be in the patch with null, at every depth.
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json


def merge_patch(old: Json, new: Json) -> Json:
    """The smallest merge patch that changes `old` to `new`. A key of `new` with the value None counts as absent."""
    patch: Json = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or (key in old and _json_equal(before, value)):
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    return patch


def _json_equal(old: Any, new: Any) -> bool:
    """Equal as JSON values. (In Python True == 1, in JSON true and 1 differ.)"""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_json_equal(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_json_equal, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)
