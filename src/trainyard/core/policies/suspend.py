"""`suspend`: the status of a job that starts, is suspended or resumes."""

from __future__ import annotations

from trainyard.core import edits
from trainyard.core.job_state import JobStatus, RoleStatus
from trainyard.core.kind import Job
from trainyard.objects.structs import replace


def next_status(job: Job, now: float, is_queued: bool = False) -> JobStatus:
    """The job's status after its start, suspension or resumption according to the spec.

    A resumed job starts a new attempt of each role; a suspended one with an invalid spec stays suspended. The spec
    edits that take effect on a running job are recorded in the roles. `is_queued`: the job waits for its first child
    until an object with `blocking_phases` lets it start; that time does not count for `activeDeadlineSeconds`.
    """
    start_time = None if is_queued else now
    status = replace(job.status, runtime_id=job.runtime_id)
    resumed = status.suspended and status.started
    if job.policy.suspend or (resumed and job.parsed.problems):
        return replace(status, start_time=None, suspended=True, has_run=False)
    if status.started and not resumed:
        status = replace(status, roles=edits.follow_edits(job))
        return status if status.start_time is not None else replace(status, start_time=start_time)
    roles = edits.removed_roles(job)
    for role in job.roles:
        before = status.role(role.name)
        attempt = before.attempt + 1 if resumed else 0
        roles[role.name] = RoleStatus(
            *(attempt, before.failures, role.replicas, role.port, role.digest),
            failures_before=before.failures_before,
            in_place=before.in_place,
        )
    resumes = status.resume_count + (1 if resumed else 0)
    # A status without roles that has a start time is from an older operator, whose pods run on.
    adopted = not status.suspended and status.start_time is not None
    return replace(
        status,
        roles=roles,
        started=True,
        suspended=False,
        has_run=adopted and status.has_run,
        resume_count=resumes,
        start_time=status.start_time if adopted else start_time,
    )
