"""Failed attempts, each counted once in the job's status, even if the operator crashes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainyard.core.carriers.terminations import restarts_of_replica
from trainyard.core.job_state import JobStatus, Replica, RoleStatus
from trainyard.core.kind import Job
from trainyard.core.model import RestartScope
from trainyard.core.policies.restart import after_attempt
from trainyard.core.restart_causes import disruption_cause, disruption_key
from trainyard.core.status import MAX_DELETED_UIDS
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace


class CountedFailures(msgspec.Struct, frozen=True):
    """The status with every visible failure counted, and the replicas of the newly counted failures, one for each."""

    status: JobStatus
    replicas: tuple[Replica, ...]


def count_failures(job: Job, replicas: list[Replica], status: JobStatus) -> CountedFailures:
    """Count the failed attempts by uid. All failures of one attempt of a gang count once (S4).

    The uids of objects that still exist are kept, and the last MAX_DELETED_UIDS of deleted ones: a stale cache may
    still have an object that was deleted.
    """
    counted, roles = list(status.counted_failures), dict(status.roles)
    visible = {disruption_key(replica.child.uid) for replica in replicas if replica.child}
    failed: list[Replica] = []
    for replica in replicas:
        role = roles.get(replica.slot.role)
        for uid in job.carrier(replica.slot.role).failed_attempts(replica):
            key = failure_key(job, replica, uid)
            visible.add(key)
            if key not in counted and role:
                role = _replaced(job, replica, role, counted)
                counted.append(key)
                failed.append(replica)
                role = replace(after_attempt(job, replica, role), failures=role.failures + 1)
                roles[replica.slot.role] = role
    deleted = [key for key in counted if key not in visible][-MAX_DELETED_UIDS:]
    keys = tuple(key for key in counted if key in visible or key in deleted)
    status = replace(status, roles=roles, counted_failures=keys)
    return CountedFailures(_count_disruptions(job, replicas, status), tuple(failed))


def _count_disruptions(job: Job, replicas: list[Replica], status: JobStatus) -> JobStatus:
    """The status with the visible disruptions of replicas that restart alone counted, each once."""
    if job.restart_scope is not RestartScope.SLOT:
        return status
    counted, causes, roles = list(status.counted_failures), dict(status.restart_causes), dict(status.roles)
    for replica in replicas:
        termination, child, role = replica.termination, replica.child, roles.get(replica.slot.role)
        if child is None or role is None:
            continue
        going = child.deleting and child.disrupted
        if not going and not (termination and termination.disrupted):
            continue
        if (key := disruption_key(child.uid)) not in counted:
            role = _replaced(job, replica, role, counted)
            counted.append(key)
            cause = disruption_cause(termination.reason if termination else child.reason)
            causes[cause] = causes.get(cause, 0) + 1
            roles[replica.slot.role] = after_attempt(job, replica, role)
    return replace(status, counted_failures=tuple(counted), restart_causes=causes, roles=roles)


def _replaced(job: Job, replica: Replica, role: RoleStatus, counted: list[str]) -> RoleStatus:
    """The role with the restarts in place of a Pod that restarts alone and has ended."""
    if not _restarts_alone(job, replica) or has_ended(replica, counted):
        return role
    return replace(role, in_place=role.in_place + restarts_of_replica(job, replica))


def _restarts_alone(job: Job, replica: Replica) -> bool:
    return job.restart_scope is RestartScope.SLOT and replica.child is not None and replica.child.kind == POD.kind


def has_ended(replica: Replica, counted: Sequence[str]) -> bool:
    """Whether the end of a replica that restarts alone is counted, as a failure or as a disruption."""
    uid = replica.child.uid if replica.child else ""
    return uid in counted or disruption_key(uid) in counted


def is_counted(job: Job, replica: Replica) -> bool:
    """True when the status has counted a failed attempt of this replica that is visible."""
    return any(failure_key(job, replica, uid) in job.status.counted_failures for uid in replica.failed_attempts)


def failure_key(job: Job, replica: Replica, uid: str) -> str:
    """The key under which a failed attempt is counted: its uid, or in a gang the attempt number (S4)."""
    return f"attempt-{replica.child.attempt}" if replica.child and job.restarts_gang() else uid
