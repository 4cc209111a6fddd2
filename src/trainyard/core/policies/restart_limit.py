"""The annotation `restart-limit` of a job: how many restarts it may have in a window of time (docs/rules.md S46).

Restarts after a failure of the program, as `status.restarts` counts them, and after a stall count. A failed attempt
counts when it is counted, before the next one begins, so that the one beyond the limit is not made. Disruptions are
shown and not limited.
"""

from __future__ import annotations

import re

import msgspec

from trainyard.core.job_state import JobStatus, Outcome, Replica
from trainyard.core.kind import Job
from trainyard.core.policies.failure_policy import join_texts, termination_text
from trainyard.objects.meta import annotations_of
from trainyard.objects.patterns import lazy_pattern

RESTART_LIMIT = "trainyard.dev/restart-limit"
"""Annotation of a job: `5/1h`, at most five restarts within an hour. Units: s, m, h, d."""
EXCEEDED = "RestartLimitExceeded"
MAX_LIMIT = 1000
"""The largest limit: the status has the time of each restart in the window."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LIMIT = lazy_pattern(r"([0-9]{1,4})/([0-9]{1,6})([smhd])", re.ASCII)


class RestartLimit(msgspec.Struct, frozen=True):
    """At most `count` restarts within `window` seconds. `text`: as the user wrote it."""

    count: int
    window: float
    text: str


def parse_limit(text: object) -> RestartLimit | None:
    """The limit that the value of the annotation means, None for one that is not understood."""
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    count, window = int(match[1]), float(int(match[2]) * _UNITS[match[3]])
    return RestartLimit(count, window, match[0]) if count <= MAX_LIMIT and window else None


def limit_of(job: Job) -> RestartLimit | None:
    """The limit of this job, None without one."""
    return parse_limit(annotations_of(job.obj).get(RESTART_LIMIT))


def recent_restarts(job: Job, status: JobStatus, restarts: int, now: float) -> tuple[float, ...]:
    """JobStatus.recent_restarts of the next status. `status`: that status; `restarts`: its `restarts`."""
    limit = limit_of(job)
    if limit is None:
        return ()
    stored = job.status.stored.get("restarts")
    before = (stored if isinstance(stored, int) else 0) + job.status.restart_causes.get("stall", 0)
    new = max(0, restarts + status.restart_causes.get("stall", 0) - before)
    times = [*job.status.recent_restarts, *(now for _ in range(min(new, limit.count + 1)))]
    # A time in the future was written with a wrong clock; it must not count for longer than the window.
    return tuple(min(time, now) for time in times if time > now - limit.window)[-limit.count - 1 :]


def outcome(
    job: Job, status: JobStatus, replicas: list[Replica], restarts: int, pending: int, stall: str, now: float
) -> Outcome | None:
    """Failed when the restarts that are still to be made would exceed the limit, else None. `status`: the next one,
    with all failures counted; `restarts`: its `restarts`; `pending`: the counted failures without a restart; `stall`:
    why the job would restart now without an ended replica, "" if it would not."""
    limit = limit_of(job)
    if limit is None:
        return None
    count = len(recent_restarts(job, status, restarts, now)) + (pending or bool(stall))
    if count <= limit.count:
        return None
    ended = (replica for replica in replicas if replica.termination and not replica.termination.disrupted)
    failures = [termination_text(replica, replica.termination) for replica in ended if replica.termination]
    text = f"restart {count} within {limit.text.partition('/')[2]}, and the annotation {RESTART_LIMIT} is {limit.text}"
    return Outcome("Failed", EXCEEDED, "; ".join(filter(None, (text, join_texts(failures) or stall))))
