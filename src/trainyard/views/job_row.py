"""A job in a list of jobs: the columns of `trainyard get` and of the page."""

from __future__ import annotations

import msgspec

from trainyard.objects import (
    Json,
    as_dict,
    name_of,
    namespace_of,
    operator_status,
    parse_time,
    resource_version_of,
    uid_of,
)
from trainyard.views.job_view import JobView, count_states, job_message, job_state
from trainyard.views.replica_view import ReplicaView


class JobRow(msgspec.Struct, frozen=True, rename="camel"):
    """One job. Its JSON has the fields below in camelCase. Times are in seconds since the epoch.

    `running` of `replicas` replicas run; `replicas` is the number that the spec asks for, which is also that of a job
    that is suspended or has ended."""

    namespace: str
    kind: str
    name: str
    uid: str
    api_version: str
    resource_version: str
    state: str  # in one word: job_view.job_state
    running: int
    replicas: int
    restarts: int
    states: dict[str, dict[str, int]] = {}  # the numbers of replicas by role (in lower case), then by state
    message: str = ""  # in one line: how the job ended, or what blocks it; "" for none
    created: float | None = None
    started: float | None = None
    ended_at: float | None = msgspec.field(default=None, name="ended")


def job_row(view: JobView, job_uid: str, slots: list[ReplicaView] | None = None) -> JobRow:
    """The row of a job of `view`. `slots`: its replicas, if the caller has them already (JobView.slots).

    Raises KeyError when the view has no job with that uid."""
    job = view.jobs[job_uid]
    slots = view.slots(job_uid) if slots is None else slots
    parsed = view.parsed(job_uid)
    roles = parsed.roles if parsed else ()
    names = {role.name.lower() for role in roles}
    status = operator_status(job)
    return JobRow(
        namespace=namespace_of(job),
        kind=str(job.get("kind") or ""),
        name=name_of(job),
        uid=uid_of(job),
        api_version=str(job.get("apiVersion") or ""),
        resource_version=resource_version_of(job),
        state=job_state(job),
        running=sum(slot.state == "Running" and slot.role in names for slot in slots),
        replicas=sum(role.replicas for role in roles),
        restarts=view.restarts(job_uid, slots),
        states=count_states(slots),
        message=" ".join(job_message(job).split()),
        created=parse_time(as_dict(job.get("metadata")).get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        ended_at=parse_time(status.get("completionTime")),
    )


def job_rows(jobs: list[Json], pods: list[Json], now: float) -> list[JobRow]:
    """The rows of jobs that are not watched, in their order. `now`: Unix seconds."""
    view = JobView.of(jobs, pods, now)
    return [job_row(view, uid_of(job)) for job in jobs]
