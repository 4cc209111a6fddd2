"""What each pod of a job did when: the lanes of a timeline, from the pods' statuses and the runs in the history.

A pod's status has only the last two runs of a container. A record of the history has all that were seen, up to a limit,
so the lanes are computed from its entries (`recorded.pod_entry`), and a pod that is there is first made such an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from trainyard.objects import Json, parse_time, uid_of
from trainyard.views.job_view import natural_sort_key
from trainyard.views.recorded import pod_entry

Phase = Literal["pending", "starting", "running", "waiting", "omitted"]
"""pending: no node has accepted the pod. starting: image, volumes and init containers, until the program's first start.
running: a run of the program. waiting: between two runs. omitted: runs that the history has left out."""


class Segment(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a lane. Its JSON has the fields below in camelCase. Times are in seconds since the epoch."""

    phase: Phase
    start: float
    end: float | None  # None: it goes on
    exit_code: int | None = None  # of a run that has ended
    reason: str = ""  # with which that run ended: Error, OOMKilled, Completed ...


class Lane(msgspec.Struct, frozen=True, rename="camel"):
    """One pod of a replica: an attempt. Its JSON has the fields below in camelCase; `segments` are in order of time."""

    replica: str  # role-index, or the pod's name where it has no slot
    role: str  # in lower case
    index: str
    attempt: int
    pod: str  # the pod's name
    uid: str  # the pod's uid
    node: str
    segments: tuple[Segment, ...]


class _Run(NamedTuple):
    number: int
    start: float
    end: float | None
    exit_code: int | None
    reason: str


def timeline(
    pods: Iterable[Json], recorded: Iterable[Json] = (), container: str = "", cut_off: float | None = None
) -> list[Lane]:
    """The lanes of a job, by replica, then from the oldest pod to the newest.

    pods: those that exist. recorded: the `pods` of result.json, for pods that are gone and for earlier runs. container:
    the container whose runs are shown (Kind.roles.container); of a pod without it, the first one. cut_off: when the
    cluster ended, for a job that ended with it (Unix seconds): nothing goes on after it."""
    entries = {str(entry.get("uid")): entry for entry in recorded}
    for pod in pods:
        entries[uid_of(pod)] = pod_entry(pod, entries.get(uid_of(pod)))
    by_age = sorted(entries.values(), key=lambda entry: _text(entry, "created"))
    lanes = [_lane(entry, container, cut_off) for entry in by_age]
    return sorted(lanes, key=lambda lane: natural_sort_key(lane.replica))


def _lane(entry: Json, container: str, cut_off: float | None) -> Lane:
    attempt = entry.get("attempt")
    return Lane(
        replica=_text(entry, "replica"),
        role=_text(entry, "role").lower() or _text(entry, "replica"),
        index=_text(entry, "index"),
        attempt=attempt if isinstance(attempt, int) else 0,
        pod=_text(entry, "name"),
        uid=_text(entry, "uid"),
        node=_text(entry, "node"),
        segments=tuple(_segments(entry, container, cut_off)),
    )


def _segments(entry: Json, container: str, cut_off: float | None) -> Iterator[Segment]:
    created = parse_time(entry.get("created"))
    if created is None:
        return
    pod_end = _pod_end(entry, cut_off)
    runs = _runs(entry, container, pod_end)
    first_run = runs[0].start if runs else pod_end
    started = parse_time(entry.get("started"))
    yield from _period("pending", created, started if started is not None else first_run)
    if started is not None:
        yield from _period("starting", started, first_run)
    for index, run in enumerate(runs):
        yield Segment("running", run.start, run.end, run.exit_code, run.reason)
        if run.end is not None and index + 1 < len(runs):
            following = runs[index + 1]
            is_next = following.number == run.number + 1
            yield from _period("waiting" if is_next else "omitted", run.end, following.start)
        elif run.end is not None and not _has_ended(entry):  # its container will be started again
            yield from _period("waiting", run.end, pod_end)


def _period(phase: Phase, start: float, end: float | None) -> Iterator[Segment]:
    """A segment, unless it has no duration: times in the API are whole seconds."""
    if end is None or end > start:
        yield Segment(phase, start, end)


def _pod_end(entry: Json, cut_off: float | None) -> float | None:
    """When the pod ended, as far as that is known: else its last known time; None while it goes on."""
    if not _has_ended(entry):
        return cut_off
    times = (parse_time(entry.get(field)) for field in ("ended", "deletionTimestamp", "started", "created"))
    return next((time for time in times if time is not None), None)


def _has_ended(entry: Json) -> bool:
    return entry.get("phase") in ("Succeeded", "Failed") or bool(entry.get("deleted"))


def _runs(entry: Json, name: str, pod_end: float | None) -> list[_Run]:
    """The runs of the pod's container, in order; those without a start are left out."""
    candidates = [container for container in entry.get("containers") or () if not container.get("init")]
    container = next((container for container in candidates if container.get("name") == name), None)
    container = container or (candidates[0] if candidates else {})
    runs = [run for recorded in container.get("runs") or () if (run := _run(recorded))]
    running = parse_time(container.get("running"))
    if running is not None and (not runs or running >= runs[-1].start):
        runs.append(_Run(int(container.get("restarts") or 0) + 1, running, pod_end, None, ""))
    return runs


def _run(recorded: Json) -> _Run | None:
    start, end, code = parse_time(recorded.get("started")), parse_time(recorded.get("ended")), recorded.get("exitCode")
    if start is None:
        return None
    return _Run(int(recorded.get("run") or 0), start, end, code, str(recorded.get("reason") or ""))


def _text(entry: Json, field: str) -> str:
    return str(entry.get(field) or "")
