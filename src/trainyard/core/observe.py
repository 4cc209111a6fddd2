"""The first step of the decision: the observed state of every slot."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core.failures import is_counted
from trainyard.core.job import Job, OwnedObjects, Replica
from trainyard.core.policies.restart import FIRST_BACKOFF


class Observation(NamedTuple):
    """One replica for each slot of the job, and when to look again at terminations that are still ignored."""

    replicas: list[Replica]
    wakeups: tuple[float, ...]


def observe(job: Job, owned: OwnedObjects, now: float) -> Observation:
    """Ask each role's carrier. A termination is ignored before its `not_before`, because the watch event of its pod may
    still arrive; not if the status has counted it, nor if that time is further away than FIRST_BACKOFF: then the clock
    that wrote it was wrong."""
    replicas, wakeups = [], []
    for slot in job.slots():
        replica = job.carrier(slot.role).observe(job, slot, owned)
        ended = replica.termination
        if ended and now < ended.not_before <= now + FIRST_BACKOFF and not is_counted(job, replica):
            wakeups.append(ended.not_before)
            replica = replica._replace(termination=None, failed_attempts=(), state="Starting")
        replicas.append(replica)
    return Observation(replicas, tuple(wakeups))
