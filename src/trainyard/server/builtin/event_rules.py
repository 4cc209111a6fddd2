"""Validation of Events in the fields of core/v1, in which they are stored.

An event with `eventTime` has further required fields; events.k8s.io/v1 requires `eventTime`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.schema.checks import json_text
from trainyard.server.builtin.validators import validate_qualified_name

TYPES = ("Normal", "Warning")
_MAX_WORD_BYTES, _MAX_MESSAGE_BYTES = 128, 1024
_DEPRECATED_FIELDS = ("firstTimestamp", "lastTimestamp", "count")
_IMMUTABLE = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reportingInstance"),
    *("type", "action", "related", "eventTime"),
)
_REPORTING_COMPONENT = "reportingComponent"
_MIN_SERIES_COUNT = 2  # the least `count` of a series


def event_problems(new: Json, old: Json | None, controller: str = _REPORTING_COMPONENT) -> Iterator[Problem]:
    """Problems of an event. `controller`: the path of the reporting controller, which depends on the API group."""
    yield from _namespace_problems(new)
    if new.get("eventTime") is None:
        return
    reporter = new[_REPORTING_COMPONENT]
    if not reporter:
        yield Problem(controller, "Required value")
    yield from validate_qualified_name(reporter, controller)
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            yield Problem(name, "Required value")
        yield from _too_long(new, name, _MAX_WORD_BYTES)
    yield from _too_long(new, "message", _MAX_MESSAGE_BYTES)


def _namespace_problems(new: Json) -> Iterator[Problem]:
    """An event must be in the namespace of its object; an event about a cluster-scoped object in `default`."""
    object_namespace = new["involvedObject"].get("namespace") or ""
    event_namespace = new["metadata"].get("namespace", "")
    if new.get("eventTime") is None:
        is_mismatch = object_namespace != event_namespace if object_namespace else event_namespace != "default"
    else:
        is_mismatch = not object_namespace and event_namespace not in ("default", "kube-system")
    if is_mismatch:
        text = f"Invalid value: {json_text(object_namespace)}: does not match event.namespace"
        yield Problem("involvedObject.namespace", text)


def _too_long(new: Json, name: str, max_bytes: int) -> Iterator[Problem]:
    if len((new.get(name) or "").encode()) > max_bytes:
        yield Problem(name, f'Invalid value: "": can have at most {max_bytes} characters')


def events_v1_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    """Problems of an event that is written through events.k8s.io/v1."""
    yield from event_problems(new, old, "reportingController")
    if old is not None:
        yield from _update_problems(new, old)
        return
    yield from _series_problems(new)
    if new.get("eventTime") is None:
        yield Problem("eventTime", "Required value")
    if (kind := new.get("type") or "") not in TYPES:
        yield Problem("type", f'Invalid value: "": has invalid value: {kind}')
    for name in (*_DEPRECATED_FIELDS, "source"):
        if new.get(name):
            yield Problem(name, 'Invalid value: "": needs to be unset')


def _update_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Problems of an update through events.k8s.io/v1: only the series is mutable."""
    if not json_equal(new.get("series"), old.get("series")):
        yield from _series_problems(new)
    for name in _IMMUTABLE:
        if (new.get(name) or None) != (old.get(name) or None):
            yield Problem(name, f"Invalid value: {json_text(new.get(name) or '')}: field is immutable")
    if new[_REPORTING_COMPONENT] != (old.get(_REPORTING_COMPONENT) or ""):
        yield Problem(
            "reportingController", f"Invalid value: {json_text(new[_REPORTING_COMPONENT])}: field is immutable"
        )


def _series_problems(new: Json) -> Iterator[Problem]:
    if (series := new.get("series")) is None:
        return
    if (series.get("count") or 0) < _MIN_SERIES_COUNT:
        yield Problem("series.count", f'Invalid value: "": should be at least {_MIN_SERIES_COUNT}')
    if series.get("lastObservedTime") is None:
        yield Problem("series.lastObservedTime", "Required value")
