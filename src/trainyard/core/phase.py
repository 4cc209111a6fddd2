"""The phase of a job, from the states of its replicas. The first rule that applies decides."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica
from trainyard.core.kind import Job
from trainyard.core.policies import backoff_limit, deadline, failure_policy, success_policy


def compute_phase(job: Job, replicas: list[Replica], now: float) -> Outcome:
    """The phase of a job whose status has counted all failures and has been suspended or resumed as the spec says."""
    outcome = (
        success_policy.outcome(job, replicas, now)
        or failure_policy.outcome(job, replicas)
        or backoff_limit.outcome(job, replicas)
        or deadline.outcome(job, replicas, now)
    )
    if outcome is not None:
        return outcome
    if job.status.suspended:
        return Outcome("Suspended", "JobSuspended", "no replica runs while spec.suspend is true")
    if job.is_running(replicas):
        return Outcome("Running", "JobRunning", "at least one replica runs")
    if job.status.has_run:
        return Outcome("Starting", "NoReplicaRunning", "no replica runs at the moment")
    return Outcome("Created", "JobCreated", "waiting for the first replica to run")
