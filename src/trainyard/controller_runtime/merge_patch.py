"""JSON merge patches (RFC 7386) computed from the old and the new value. Pure.

A merge patch keeps the keys that it does not contain, so a removed key must be in the patch with null, at every depth.
"""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.objects.json_equal import json_equal


def merge_patch(old: Json, new: Json) -> Json:
    """The smallest merge patch that changes `old` to `new`. A key of `new` with the value None counts as absent."""
    patch: Json = {key: None for key in old if new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or (key in old and json_equal(before, value)):
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    return patch
