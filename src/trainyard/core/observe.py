"""The first step of `decide`: the observed state of every slot."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core.failures import is_counted
from trainyard.core.job_state import OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.policies.restart import BASE_DELAY
from trainyard.objects.structs import replace


class Observation(NamedTuple):
    """One replica for each slot of the job, and the times until which terminations are ignored."""

    replicas: list[Replica]
    wakeups: tuple[float, ...]


def observe(job: Job, owned: OwnedObjects, now: float) -> Observation:
    """Observe each slot with the carrier of its role.

    A termination is ignored before its `ignored_until`, because the watch event of its pod may still arrive. It is not
    ignored if the status has counted it, nor if `ignored_until` is more than BASE_DELAY in the future: then it was
    written with a wrong clock.
    """
    replicas, wakeups = [], []
    for slot in job.slots():
        replica = job.carrier(slot.role).observe(job, slot, owned)
        termination = replica.termination
        if termination and now < termination.ignored_until <= now + BASE_DELAY and not is_counted(job, replica):
            wakeups.append(termination.ignored_until)
            replica = replace(replica, termination=None, failed_attempts=(), state="Starting")
        replicas.append(replica)
    return Observation(replicas, tuple(wakeups))
