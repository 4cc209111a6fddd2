"""When a job has succeeded: once all replicas of one of its success sets have (Lifecycle.success_sets)."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica
from trainyard.core.kind import Job


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Succeeded once all slots of one success set have succeeded, else None."""
    succeeded = {replica.slot for replica in replicas if replica.state == "Succeeded"}
    for slots in job.success_sets():
        if slots and slots <= succeeded:
            names = ", ".join(replica.name for replica in replicas if replica.slot in slots)
            return Outcome("Succeeded", "JobSucceeded", f"{names} ended with exit code 0")
    return None
