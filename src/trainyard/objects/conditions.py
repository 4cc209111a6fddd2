"""Conditions by the Kubernetes API conventions: one per type; lastTransitionTime changes only with the status."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.objects.meta import Json
from trainyard.objects.times import format_time


def find_condition(conditions: object, condition_type: str) -> Json | None:
    """The condition of type `condition_type`, None when it is absent."""
    if isinstance(conditions, list):
        for entry in conditions:
            if isinstance(entry, dict) and entry.get("type") == condition_type:
                return entry
    return None


def is_condition_true(conditions: object, kind: str) -> bool:
    """Whether the condition of type `kind` has status "True"; an absent one has not."""
    entry = find_condition(conditions, kind)
    return entry is not None and entry.get("status") == "True"


def set_condition(
    conditions: Sequence[Json], kind: str, status: bool, reason: str, message: str, now: float
) -> list[Json]:
    """A new list with the condition of type `kind` set. The order is kept. `now` is in seconds since 1970
    (UTC).

    lastTransitionTime changes only when the status does.
    """
    status_text = "True" if status else "False"
    old = find_condition(list(conditions), kind)
    last_transition = old.get("lastTransitionTime") if old and old.get("status") == status_text else None
    new = {
        "type": kind,
        "status": status_text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": last_transition or format_time(now),
    }
    if old is None:
        return [*conditions, new]
    return [new if entry is old else entry for entry in conditions]
