"""`managedBy`: which controller a job belongs to (docs/rules.md S6)."""

from __future__ import annotations

from trainyard.core.job import Job

OURS = "trainyard.dev/operator"
OTHERS = frozenset({"kueue.x-k8s.io/multikueue"})
"""Other controllers that a job may be handed over to, as far as they are known."""


def is_managed_here(job: Job) -> bool:
    """With any other `managedBy` the operator sends no request for the job."""
    return job.policy.managed_by in ("", OURS)
