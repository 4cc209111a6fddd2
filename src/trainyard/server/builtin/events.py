"""Events: one resource in two API groups. Stored as core/v1; events.k8s.io/v1 is converted on read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern

from trainyard.api_types.decoding import normalize
from trainyard.api_types.defaults import set_defaults, string_or_empty
from trainyard.api_types.schemas import built_in
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Resource

# core/v1 name -> events.k8s.io/v1 name
_EVENTS_V1_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_V1_NAMES = {new: old for old, new in _EVENTS_V1_NAMES.items()}
LIFETIME_SECONDS, MAX_EVENTS = 3600.0, 4000
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def read(event: Json) -> Json:
    """An event as stored (v1), in the form of events.k8s.io/v1."""
    renamed = {_EVENTS_V1_NAMES.get(name, name): value for name, value in event.items()}
    for name in ("reportingController", "reportingInstance"):
        if not renamed.get(name):
            renamed.pop(name, None)
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def write(event: Json) -> Json:
    """An event of events.k8s.io/v1, in the form in which it is stored (v1)."""
    renamed = {_CORE_V1_NAMES.get(name, name): value for name, value in event.items()}
    return dict(normalize({**renamed, "apiVersion": "v1"}, built_in("api.core.v1.Event")))


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of an Event."""
    set_defaults(new, involvedObject={}, source={}, reportingComponent="", reportingInstance="")
    for name in ("eventTime", "firstTimestamp", "lastTimestamp"):
        new.setdefault(name, None)


def check(new: Json, old: Json | None) -> list[Problem]:
    """An Event must be in the namespace of its object; one about a cluster-scoped object in `default`."""
    object_namespace = new["involvedObject"].get("namespace") or ""
    if (object_namespace or "default") == new["metadata"].get("namespace", ""):
        return []
    text = f"Invalid value: {json_text(object_namespace)}: does not match event.namespace"
    return [Problem("involvedObject.namespace", text)]


class EventFields(Mapping[str, str]):
    """The selectable fields of an Event. A dict of them takes five times as much memory, and a cluster keeps thousands
    of Events."""

    __slots__ = ("_values",)

    def __init__(self, values: tuple[str, ...]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[_FIELD_POSITIONS[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELD_POSITIONS)

    def __len__(self) -> int:
        return len(_FIELD_POSITIONS)


_VALUES = (*(f"involvedObject.{name}" for name in _REFERENCE_FIELDS), "reason", "type", "reportingComponent", "source")
_FIELD_POSITIONS = {name: position for position, name in enumerate((*_VALUES, "created"))}
_FIELD_POSITIONS |= {f"regarding.{name}": position for position, name in enumerate(_REFERENCE_FIELDS)}
_FIELD_POSITIONS["reportingController"] = _FIELD_POSITIONS["reportingComponent"]


def fields(event: Json) -> EventFields:
    """The selectable fields of an Event, for both API versions."""
    reference, source = event.get("involvedObject") or {}, event.get("source") or {}
    values = (
        *(reference.get(name) for name in _REFERENCE_FIELDS),
        *(event.get("reason"), event.get("type"), event.get("reportingComponent"), source.get("component")),
        event["metadata"].get("creationTimestamp"),
    )
    return EventFields(tuple(intern(string_or_empty(value)) for value in values))


_FIELD_NAMES = tuple(name for name in _FIELD_POSITIONS if name != "created")
RESOURCES = tuple(
    Resource(
        group=group,
        kind="Event",
        plural="events",
        short=("ev",),
        storage_name="events",
        name_rule="subdomain" if group else "path",
        lifetime_seconds=0 if group else LIFETIME_SECONDS,
        max_objects=MAX_EVENTS,
        prepare=prepare,
        check=check,
        fields=fields,
        field_names=_FIELD_NAMES,
        columns=columns.EVENT,
        from_storage=read if group else None,
        to_storage=write if group else None,
    )
    for group in ("", "events.k8s.io")
)
