"""`ttlSecondsAfterFinished`: when a finished job is deleted."""

from __future__ import annotations

from trainyard.core.kind import Job
from trainyard.objects.writes import Delete


def expires_at(job: Job, completion: float | None) -> float | None:
    """When the finished job is deleted; None without a TTL."""
    seconds = job.policy.ttl_seconds_after_finished
    return None if seconds is None or completion is None else completion + seconds


def expired_job(job: Job, now: float) -> Delete | None:
    """The delete of the job itself, once its TTL is over."""
    expires = expires_at(job, job.status.completion_time)
    if expires is None or now < expires:
        return None
    text = f"finished {job.policy.ttl_seconds_after_finished} s ago (ttlSecondsAfterFinished)"
    return Delete(job.kind.gvk, job.key.namespace, job.key.name, job.uid, reason=text)
