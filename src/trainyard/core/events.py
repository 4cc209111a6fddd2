"""Which events of a plan are recorded, so that a job of a thousand replicas has no thousand events."""

from __future__ import annotations

from collections.abc import Container, Iterable, Set

from trainyard.core.model import Event
from trainyard.objects import Ref
from trainyard.objects.structs import replace

MAX_ALIKE = 4
"""So many events of one type and reason in one plan are recorded each; of more, there is one. The README of ElasticJob
shows one for each Pod of its job of two."""


def recorded_events(events: Iterable[Event], refused: Container[Ref]) -> tuple[Event, ...]:
    """The events, without those of children whose write was refused. More than MAX_ALIKE of equal type and reason
    become one: "Created pod: imagenet-worker-0 and 999 more"."""
    groups: dict[tuple[str, str], dict[str, Event]] = {}  # by message
    for event in events:
        if event.regarding is None or event.regarding not in refused:
            groups.setdefault((event.type, event.reason), {}).setdefault(event.message, event)
    return tuple(event for group in groups.values() for event in _summary(list(group.values())))


def unwarned(warnings: Iterable[Event], warned: Set[tuple[str, Ref | None]]) -> list[Event]:
    """The warnings about pods that are recorded now, if those of `warned`, by reason and pod, have been: at most
    MAX_ALIKE of a reason, each once. A thousand pods that wait for one node have one cause."""
    recorded = set(warned)
    new = []
    for event in warnings:
        key = (event.reason, event.regarding)
        if key not in recorded and sum(reason == event.reason for reason, _ in recorded) < MAX_ALIKE:
            recorded.add(key)
            new.append(event)
    return new


def _summary(events: list[Event]) -> list[Event]:
    if len(events) <= MAX_ALIKE:
        return events
    first = events[0]
    return [replace(first, message=f"{first.message} and {len(events) - 1} more", regarding=None)]
