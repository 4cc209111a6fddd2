"""Conditions, by today's API convention: one per type, lastTransitionTime moves only when the status changes."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.objects.meta import Json
from trainyard.objects.times import format_time


def condition(conditions: object, kind: str) -> Json | None:
    """The condition of that type, None when absent."""
    if isinstance(conditions, list):
        for one in conditions:
            if isinstance(one, dict) and one.get("type") == kind:
                return one
    return None


def is_true(conditions: object, kind: str) -> bool:
    found = condition(conditions, kind)
    return found is not None and found.get("status") == "True"


def with_condition(
    conditions: Sequence[Json], kind: str, status: bool, reason: str, message: str, now: float
) -> list[Json]:
    """A new list in which `kind` says this. Order is kept; the time moves only when True and False change places."""
    word = "True" if status else "False"
    old = condition(list(conditions), kind)
    since = old.get("lastTransitionTime") if old and old.get("status") == word else None
    new = {
        "type": kind,
        "status": word,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or format_time(now),
    }
    if old is None:
        return [*conditions, new]
    return [new if one is old else one for one in conditions]
