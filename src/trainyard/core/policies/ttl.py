"""`ttlSecondsAfterFinished`: when a finished job is deleted, or its pods where the TTL is in the object that has their
templates."""

from __future__ import annotations

from trainyard.core.changes import delete_child, slot_children
from trainyard.core.job_state import OwnedObjects
from trainyard.core.kind import Job
from trainyard.objects.writes import Delete


def expires_at(job: Job, completion: float | None) -> float | None:
    """When the TTL of the finished job is over; None without a TTL."""
    seconds = job.policy.ttl_seconds_after_finished
    return None if seconds is None or completion is None else completion + seconds


def expired_objects(job: Job, owned: OwnedObjects, now: float) -> list[Delete]:
    """The deletes of the job itself, or of its pods, once its TTL is over."""
    expires = expires_at(job, job.status.completion_time)
    if expires is None or now < expires:
        return []
    text = f"finished {job.policy.ttl_seconds_after_finished} s ago (ttlSecondsAfterFinished)"
    if job.kind.template_source:
        return [delete_child(job, child, text) for child in slot_children(job, owned) if not child.deleting]
    return [Delete(job.kind.gvk, job.key.namespace, job.key.name, job.uid, reason=text)]
