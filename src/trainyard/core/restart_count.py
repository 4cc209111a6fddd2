"""`status.restarts`: the number of restarts of a job after failures. `policies/restart.py` decides what restarts.

A restart is that of a container in place by the kubelet, or a new attempt after a failed one. A failed attempt that is
the last one of its slot was not restarted. All failures of one attempt of a gang count as one failure, and the next
attempt as one restart. A pod that a drain or a suspension deleted did not fail, so its replacement is no restart.
`backoffLimit` counts failures, which are in `status.roles`.

The number never falls, although the restarts in place of a deleted pod are no longer observed, and although a new
leader's cache may have the newest status together with a failed pod that is already deleted. So that the restarts in
place of the next pod count from the first on, those of a pod that is replaced are added to RoleStatus.in_place: with
the status that begins a new attempt, or, of a replica that restarts alone, with the one that counts its end by uid.
Those of a pod that another client deletes are not, unless that is a disruption.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.core.carriers.terminations import newest_pod, restarts_of_replica
from trainyard.core.failures import failure_key, has_ended
from trainyard.core.job_state import OwnedObjects, Replica
from trainyard.core.kind import Job


def count_restarts(job: Job, replicas: list[Replica], owned: OwnedObjects) -> int:
    """The restarts of the job, whose status has counted every failure of these replicas."""
    failures = sum(role.failures for role in job.status.roles.values())
    restarts = failures - len(set(_not_restarted(job, replicas, owned))) + _in_place(job, replicas)
    before = job.status.stored.get("restarts")
    return max(restarts, before if isinstance(before, int) else 0, 0)


def pending_restarts(job: Job, replicas: list[Replica], restarts: int) -> int:
    """How many counted failures have no restart yet. `restarts`: as count_restarts says. A stale cache may still have a
    failed attempt whose restart `restarts` has."""
    failures = sum(role.failures for role in job.status.roles.values())
    return max(0, failures + _in_place(job, replicas) - restarts)


def _in_place(job: Job, replicas: list[Replica]) -> int:
    """The restarts in place of all pods, also of those that were replaced."""
    replaced = sum(role.in_place for role in job.status.roles.values())
    present = (replica for replica in replicas if not _is_replaced(job, replica))
    return replaced + sum(restarts_of_replica(job, replica) for replica in present)


def _is_replaced(job: Job, replica: Replica) -> bool:
    child = replica.child
    is_stale = child is not None and child.attempt < job.status.role(replica.slot.role).attempt
    return is_stale or has_ended(replica, job.status.counted_failures)


def _not_restarted(job: Job, replicas: list[Replica], owned: OwnedObjects) -> Iterable[str]:
    """The keys of failed attempts that are the last ones of their slots."""
    for replica in replicas:
        if replica.child is None or not replica.failed_attempts:
            continue
        newest = newest_pod(owned.pods_by_owner.get(replica.child.uid, ()))
        last = {replica.child.uid, newest.uid if newest else ""}
        yield from (failure_key(job, replica, uid) for uid in replica.failed_attempts if uid in last)
