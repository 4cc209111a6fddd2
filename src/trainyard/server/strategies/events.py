"""Events: one thing under two names. Stored as core/v1 writes them; events.k8s.io/v1 is another way to say the same."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.server.decoding import settled
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.event_rules import event_problems, new_event_problems
from trainyard.server.strategies.shapes import FREE, INTEGER, STRING, fill, obj, text
from trainyard.server.types import built_in

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
_TIMES = ("eventTime", "firstTimestamp", "lastTimestamp")
_LEFT_OUT = ("type", "reason", "message", "count", "action")  # where there is nothing in them
_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def read(event: Json) -> Json:
    renamed = {_NAMES.get(name, name): part for name, part in event.items()}
    for name in ("reportingController", "reportingInstance"):
        if not renamed.get(name):
            renamed.pop(name, None)
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def write(event: Json) -> Json:
    renamed = {_BACK.get(name, name): part for name, part in event.items()}
    return dict(settled({**renamed, "apiVersion": "v1"}, built_in("api.core.v1.Event")))


def prepare(new: Json, old: Json | None, site: Site) -> None:
    """The real server writes these though there is nothing in them."""
    fill(new, involvedObject={}, source={}, reportingComponent="", reportingInstance="")
    for name in _TIMES:
        new.setdefault(name, None)
    if new.get("series") is not None:
        new["series"] = {"lastObservedTime": None, **new["series"]}
        if not new["series"].get("count"):
            new["series"].pop("count", None)
    for name in _LEFT_OUT:
        if not new.get(name):
            new.pop(name, None)


def _check(new: Json, old: Json | None) -> list[Problem]:
    return list(event_problems(new, old))


def _check_new(new: Json, old: Json | None) -> list[Problem]:
    return list(new_event_problems(new, old))


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
_SCHEMA = Schema.ours(obj(involvedObject=FREE, source=FREE, series=FREE, reason=STRING, message=STRING, count=INTEGER))

RESOURCES = tuple(
    Resource(
        group=group,
        kind="Event",
        plural="events",
        short=("ev",),
        store="events",
        schema=_SCHEMA,
        name_rule="subdomain" if group else "path",
        prepare=prepare,
        check=_check_new if group else _check,
        fields=fields,
        field_names=_FIELD_NAMES,
        columns=cells.EVENT,
        read=read if group else None,
        write=write if group else None,
    )
    for group in ("", "events.k8s.io")
)
