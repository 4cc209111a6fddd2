"""Events: one thing under two names. Stored as core/v1 writes them; events.k8s.io/v1 is another way to say the same."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json
from trainyard.schema import Schema
from trainyard.server.resources import Resource
from trainyard.server.strategies import cells
from trainyard.server.strategies.judging import event_problems
from trainyard.server.strategies.shapes import FREE, INTEGER, STRING, obj, text

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


_FIELD_NAMES = (
    *(f"involvedObject.{name}" for name in _OBJECT),
    *(f"regarding.{name}" for name in _OBJECT),
    "reason",
    "type",
    "reportingController",
    "reportingComponent",
    "source",
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
        check=event_problems,
        fields=fields,
        field_names=_FIELD_NAMES,
        columns=cells.EVENT,
        read=read if group else None,
        write=write if group else None,
    )
    for group in ("", "events.k8s.io")
)
