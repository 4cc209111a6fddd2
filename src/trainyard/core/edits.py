"""Edits of the spec of a running job: which of them take effect, and their effect on the roles (docs/rules.md S11)."""

from __future__ import annotations

from trainyard.core.job_state import RoleStatus
from trainyard.core.kind import Job
from trainyard.core.model import TemplateChange
from trainyard.core.names import same_digest
from trainyard.objects.structs import replace


def follow_edits(job: Job) -> dict[str, RoleStatus]:
    """The roles of a running job's status, updated with the edits that take effect on it."""
    before = job.status.roles
    if job.parsed.problems:
        return dict(before)
    fixed = {name: role for name, role in before.items() if not job.kind.lifecycle.follows_edits(name)}
    roles = fixed | removed_roles(job)
    for role in job.roles:
        change, old = job.kind.lifecycle.on_template_change(role.name), before.get(role.name)
        if change is TemplateChange.IGNORE:
            continue
        same = old is not None and same_digest(old.digest, role.digest)
        restarts = change is TemplateChange.RESTART and old is not None and not same
        attempt = old.attempt + restarts if old else 0
        failures = old.failures if old else 0
        without_progress = old.without_progress if old and not restarts else 0
        digest = old.digest if old and same else role.digest  # an equal digest is kept in its stored form (same_digest)
        in_place = old.in_place if old else 0
        roles[role.name] = RoleStatus(
            attempt, failures, role.replicas, role.port, digest, without_progress, in_place=in_place
        )
    return roles


def removed_roles(job: Job) -> dict[str, RoleStatus]:
    """Roles that the spec no longer has. Their attempts are kept: otherwise a child that still exists would count as a
    child of a new role of the same name."""
    removed = {
        name: role
        for name, role in job.status.roles.items()
        if job.kind.lifecycle.follows_edits(name) and not job.role(name)
    }
    return {name: replace(role, replicas=0, digest="") for name, role in removed.items()}
