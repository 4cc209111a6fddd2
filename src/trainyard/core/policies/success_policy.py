"""When a job has succeeded: once all replicas of `Kind.success_slots` have succeeded."""

from __future__ import annotations

from trainyard.core.job import Job, Outcome, Replica


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Succeeded once all success slots of the kind have succeeded, else None."""
    decisive = [replica for replica in replicas if replica.slot in job.kind.success_slots_of(job)]
    if not decisive or any(replica.state != "Succeeded" for replica in decisive):
        return None
    names = ", ".join(replica.name for replica in decisive)
    return Outcome("Succeeded", "JobSucceeded", f"{names} ended with exit code 0")
