"""When a job has succeeded: once all replicas of one of its success sets have (Lifecycle.success_sets), and the others
that still run have had Lifecycle.success_grace to end by themselves, or, if they are workers of a launcher, the time
until their loss would be reported (success_doubt.success_grace)."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica
from trainyard.core.kind import Job
from trainyard.core.model import Slot
from trainyard.core.policies import deadline, success_doubt

GRACE = "SuccessGrace"
"""Reason of the outcome Running of a job that has succeeded but for the replicas that still run."""


def outcome(job: Job, replicas: list[Replica], now: float) -> Outcome | None:
    """Succeeded once all slots of one success set have succeeded, else None. Within the grace the job is Running:
    the failure of another replica no longer counts, and none is retried."""
    slots = _succeeded_set(job, replicas)
    if not slots:
        return None
    if (end := grace_end(job, replicas, now)) is not None and now < end:
        return Outcome("Running", GRACE, "at least one replica runs")
    names = ", ".join(replica.name for replica in replicas if replica.slot in slots)
    return Outcome("Succeeded", "JobSucceeded", f"{names} ended with exit code 0")


def grace_end(job: Job, replicas: list[Replica], now: float) -> float | None:
    """When the replicas that still run after the success are stopped, at the deadline at the latest; None before the
    success, if none runs, without a grace or in a suspended job, and if a node's clock is ahead by more than it."""
    grace = max(job.kind.lifecycle.success_grace(job), success_doubt.success_grace(job, replicas))
    grace = 0.0 if job.status.suspended else grace
    slots = _succeeded_set(job, replicas) if grace else frozenset()
    if not slots or not any(replica.state == "Running" for replica in replicas if replica.slot not in slots):
        return None
    children = [replica.child for replica in replicas if replica.child and replica.slot in slots]
    ended = max((child.finished_at for child in children), default=0.0)
    times = (ended + grace, deadline.expires_at(job, job.status.start_time))
    return min(time for time in times if time is not None) if ended <= now + grace else None


def _succeeded_set(job: Job, replicas: list[Replica]) -> frozenset[Slot]:
    """The first success set of which all slots have succeeded; empty without one."""
    succeeded = {replica.slot for replica in replicas if replica.state == "Succeeded"}
    return next((slots for slots in job.success_sets() if slots and slots <= succeeded), frozenset())
