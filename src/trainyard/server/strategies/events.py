"""Events: one thing under two names. Stored as core/v1 writes them; events.k8s.io/v1 is another way to say the same."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json
from trainyard.schema import Schema
from trainyard.server.resources import Column, Resource
from trainyard.server.strategies.shapes import FREE, INTEGER, STRING, obj, text
from trainyard.server.tables import since

# core/v1 name -> events.k8s.io/v1 name
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}
_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def read(event: Json) -> Json:
    renamed = {_NAMES.get(name, name): part for name, part in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def write(event: Json) -> Json:
    renamed = {_BACK.get(name, name): part for name, part in event.items()}
    return {**renamed, "apiVersion": "v1"}


def fields(event: Json) -> Mapping[str, str]:
    involved = event.get("involvedObject") or {}
    found = {f"involvedObject.{name}": text(involved.get(name)) for name in _OBJECT}
    found.update({f"regarding.{name}": text(involved.get(name)) for name in _OBJECT})
    found["reason"], found["type"] = text(event.get("reason")), text(event.get("type"))
    found["reportingController"] = found["reportingComponent"] = text(event.get("reportingComponent"))
    found["created"] = text(event["metadata"].get("creationTimestamp"))
    found["source"] = text((event.get("source") or {}).get("component"))
    return found


def last_seen(event: Json, now: float) -> str:
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return since(next((stamp for stamp in stamps if stamp), None), now)


def shown_object(event: Json, now: float) -> str:
    involved = event.get("involvedObject") or event.get("regarding") or {}
    return f"{text(involved.get('kind')).lower()}/{involved.get('name')}"


_FIELD_NAMES = (
    *(f"involvedObject.{name}" for name in _OBJECT),
    *(f"regarding.{name}" for name in _OBJECT),
    "reason",
    "type",
    "reportingController",
    "reportingComponent",
    "source",
)
_COLUMNS = (
    Column("Last Seen", last_seen),
    Column("Type", lambda event, now: event.get("type")),
    Column("Reason", lambda event, now: event.get("reason")),
    Column("Object", shown_object),
    Column("Message", lambda event, now: text(event.get("message") or event.get("note")).strip()),
    Column("Name", lambda event, now: event["metadata"]["name"], priority=1, format="name"),
)
_SCHEMA = Schema(obj(involvedObject=FREE, source=FREE, series=FREE, reason=STRING, message=STRING, count=INTEGER))

RESOURCES = tuple(
    Resource(
        group=group,
        kind="Event",
        plural="events",
        short=("ev",),
        store="events",
        schema=_SCHEMA,
        fields=fields,
        field_names=_FIELD_NAMES,
        columns=_COLUMNS,
        read=read if group else None,
        write=write if group else None,
    )
    for group in ("", "events.k8s.io")
)
