"""`managedBy`: which controller a job belongs to (docs/rules.md S6)."""

from __future__ import annotations

from trainyard.core.kind import Job

KNOWN_CONTROLLERS = frozenset({"kueue.x-k8s.io/multikueue"})
"""The known values of `managedBy` for other controllers; an unknown value gets a warning."""


def is_managed_here(job: Job) -> bool:
    """True for `managedBy` unset or one of Api.managers; for any other value the operator sends no request."""
    return job.policy.managed_by in ("", *job.kind.api.managers)
