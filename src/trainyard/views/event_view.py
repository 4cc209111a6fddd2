"""An event about a job or an object of it."""

from __future__ import annotations

import msgspec

from trainyard.objects import Json, as_dict, parse_time


class EventView(msgspec.Struct, frozen=True, rename="camel"):
    """One event. Its JSON has the fields below in camelCase."""

    time: float | None  # of its last occurrence, in seconds since the epoch
    count: int
    type: str  # Normal or Warning
    reason: str
    object: str  # KIND/NAME
    source: str
    message: str  # in one line


def event_view(event: Json) -> EventView:
    """The event as it is shown."""
    involved_object = as_dict(event.get("involvedObject"))
    source = as_dict(event.get("source")).get("component") or event.get("reportingComponent") or ""
    return EventView(
        time=parse_time(last_timestamp(event)),
        count=as_dict(event.get("series")).get("count") or event.get("count") or 1,
        type=str(event.get("type") or ""),
        reason=str(event.get("reason") or ""),
        object=f"{involved_object.get('kind', '')}/{involved_object.get('name', '')}",
        source=str(source),
        message=" ".join(str(event.get("message") or "").split()),
    )


def last_timestamp(event: Json) -> str:
    """The time of an event's last occurrence. RFC 3339 times in UTC sort as text."""
    series = as_dict(event.get("series"))
    timestamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(timestamp or as_dict(event.get("metadata")).get("creationTimestamp") or "")
