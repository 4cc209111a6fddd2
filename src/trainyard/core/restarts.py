"""`status.restarts`: how often something of a job was started again after a failure.

A restart is a container that its node has started again in place, or a new attempt after a failed one. A failed attempt
that is still the last one of its slot was not restarted. All ends of one attempt of a gang are one failure, and what
follows is one restart. What a drain or a suspension has taken away did not fail, so its replacement is no restart.
`backoffLimit` counts failures, which `status.roles` remembers.

The number never falls, although the restarts in place of a deleted pod are no longer seen, and although a new leader's
cache may have the newest status but still hold a failed pod that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.core.carriers.terminations import newest_pod
from trainyard.core.failures import failure_key
from trainyard.core.job import Job, OwnedObjects, Replica
from trainyard.core.policies.backoff_limit import restarts_in_place


def count(job: Job, replicas: list[Replica], owned: OwnedObjects) -> int:
    """The restarts of the job, whose memory has counted every failure that these replicas show."""
    failures = sum(role.failures for role in job.status.roles.values())
    now = failures - len(set(_not_restarted(job, replicas, owned))) + restarts_in_place(replicas)
    before = job.status.wire.get("restarts")
    return max(now, before if isinstance(before, int) else 0, 0)


def _not_restarted(job: Job, replicas: list[Replica], owned: OwnedObjects) -> Iterable[str]:
    """The failed attempts after which nothing was started in their slot."""
    for replica in replicas:
        if replica.child is None or not replica.failed_attempts:
            continue
        newest = newest_pod(owned.pods_by_owner.get(replica.child.uid, ()))
        last = {replica.child.uid, newest.uid if newest else ""}
        yield from (failure_key(job, replica, uid) for uid in replica.failed_attempts if uid in last)
