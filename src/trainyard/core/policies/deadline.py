"""`activeDeadlineSeconds`: how long a job may run, from its start or last resumption."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica
from trainyard.core.kind import Job
from trainyard.core.policies.failure_policy import crash_text, join_texts


def expires_at(job: Job, start: float | None) -> float | None:
    """When the deadline is over; None without one, or while the job is suspended."""
    seconds = job.policy.active_deadline_seconds
    return None if seconds is None or start is None else start + seconds


def outcome(job: Job, replicas: list[Replica], now: float) -> Outcome | None:
    """Failed once the deadline is over, else None. The message names replicas whose containers ended again and again:
    their pods are deleted, and with them the exit codes."""
    expires = expires_at(job, job.status.start_time)
    if expires is None or now < expires:
        return None
    limit = f"activeDeadlineSeconds ({job.policy.active_deadline_seconds} s)"
    text = f"still running after {limit}" if _has_started(job, replicas) else f"no replica has run within {limit}"
    crashes = [crash for replica in replicas if (crash := crash_text(replica))]
    return Outcome("Failed", "DeadlineExceeded", "; ".join(filter(None, (text, join_texts(crashes)))))


def _has_started(job: Job, replicas: list[Replica]) -> bool:
    """Whether a replica has run since the job was created: it may have waited for its gang all the time."""
    return (
        job.status.has_run
        or any(role.failures for role in job.status.roles.values())
        or any(replica.state not in ("Unknown", "Starting") or replica.restart_count for replica in replicas)
    )
