"""What the real server refuses of Events, in the words of core/v1, as they are stored.

An event of today says when it happened (`eventTime`), and has more to say; events.k8s.io/v1 takes only such.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.same import same
from trainyard.server.strategies.refusing import keyed

TYPES = ("Normal", "Warning")
_LONGEST_WORD, _LONGEST_TEXT = 128, 1024
_OLD_FIELDS = ("firstTimestamp", "lastTimestamp", "count")
_STAYS = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reportingInstance"),
    *("type", "action", "related", "eventTime"),
)
_CONTROLLER = "reportingComponent"
_LEAST = 2  # events in a series


def event_problems(new: Json, old: Json | None, controller: str = _CONTROLLER) -> Iterator[Problem]:
    """`controller`: what the field of the reporting controller is called."""
    yield from _place_problems(new)
    if new.get("eventTime") is None:
        return
    who = new[_CONTROLLER]
    if not who:
        yield Problem(controller, "Required value")
    yield from keyed(who, controller)
    for name in ("reportingInstance", "action", "reason"):
        if not new.get(name):
            yield Problem(name, "Required value")
        yield from _too_long(new, name, _LONGEST_WORD)
    yield from _too_long(new, "message", _LONGEST_TEXT)


def _place_problems(new: Json) -> Iterator[Problem]:
    """An event stands in the namespace of its object, one about the cluster in `default`."""
    about, place = new["involvedObject"].get("namespace") or "", new["metadata"].get("namespace", "")
    if new.get("eventTime") is None:
        wrong = about != place if about else place != "default"
    else:
        wrong = not about and place not in ("default", "kube-system")
    if wrong:
        text = f"Invalid value: {shown(about)}: does not match event.namespace"
        yield Problem("involvedObject.namespace", text)


def _too_long(new: Json, name: str, most: int) -> Iterator[Problem]:
    if len((new.get(name) or "").encode()) > most:
        yield Problem(name, f'Invalid value: "": can have at most {most} characters')


def new_event_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    """What events.k8s.io/v1 takes."""
    yield from event_problems(new, old, "reportingController")
    if old is not None:
        yield from _changes(new, old)
        return
    yield from _series_problems(new)
    if new.get("eventTime") is None:
        yield Problem("eventTime", "Required value")
    if (kind := new.get("type") or "") not in TYPES:
        yield Problem("type", f'Invalid value: "": has invalid value: {kind}')
    for name in (*_OLD_FIELDS, "source"):
        if new.get(name):
            yield Problem(name, 'Invalid value: "": needs to be unset')


def _changes(new: Json, old: Json) -> Iterator[Problem]:
    """Of an event that is there, only the series goes on."""
    if not same(new.get("series"), old.get("series")):
        yield from _series_problems(new)
    for name in _STAYS:
        if (new.get(name) or None) != (old.get(name) or None):
            yield Problem(name, f"Invalid value: {shown(new.get(name) or '')}: field is immutable")
    if new[_CONTROLLER] != (old.get(_CONTROLLER) or ""):
        yield Problem("reportingController", f"Invalid value: {shown(new[_CONTROLLER])}: field is immutable")


def _series_problems(new: Json) -> Iterator[Problem]:
    if (series := new.get("series")) is None:
        return
    if (series.get("count") or 0) < _LEAST:
        yield Problem("series.count", f'Invalid value: "": should be at least {_LEAST}')
    if series.get("lastObservedTime") is None:
        yield Problem("series.lastObservedTime", "Required value")
