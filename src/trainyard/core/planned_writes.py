"""The writes to the children in the phase of the job, and which of them are due."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainyard.core import changes
from trainyard.core.job_state import Outcome, OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.model import Observed, PlannedCreate
from trainyard.core.policies import clean_pod_policy, node_lost
from trainyard.objects.writes import Delete, Patch


class PlannedWrites(msgspec.Struct, frozen=True):
    """In the order in which they are sent: deletes, patches, creates. `wakeups`: when further ones will be due."""

    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    creates: tuple[PlannedCreate, ...] = ()
    wakeups: tuple[float, ...] = ()


def plan_writes(
    job: Job,
    replicas: list[Replica],
    owned: OwnedObjects,
    observed: Observed,
    outcome: Outcome,
    slot_restarts: tuple[Replica, ...],
    now: float,
) -> PlannedWrites:
    """All writes, refused ones included. `slot_restarts`: replicas that restart without a new attempt of their role."""
    lost, lost_due = node_lost.force_deletes(job, owned, now)
    creates: Sequence[PlannedCreate] = ()
    wake_due = None
    if outcome.is_finished:
        clean = clean_pod_policy.effective_policy(job, outcome.reason)
        deletes, patches = clean_pod_policy.clean_pods(job, owned, clean, outcome.reason)
    elif outcome.phase == "Suspended":
        deletes, patches = clean_pod_policy.clean_pods(job, owned, "Running", outcome.reason, resumes=True)
        deletes += changes.suspended_deletes(job, owned, outcome.reason)
    else:
        creates = changes.sendable_creates(job, owned, changes.missing_creates(job, owned), observed)
        deletes, patches = changes.auxiliary_changes(job, owned, observed, now)
        wake_due = changes.wake_due(job, owned, now)
        deletes = [*changes.stale_deletes(job, owned), *changes.slot_restart_deletes(job, slot_restarts), *deletes]
        resumes = (job.carrier(replica.slot.role).resume(job, replica) for replica in replicas)
        patches += [patch for patch in resumes if patch]
    wakeups = tuple(due for due in (lost_due, wake_due) if due is not None)
    return PlannedWrites((*lost, *deletes), tuple(patches), tuple(creates), wakeups)


def due_writes(writes: PlannedWrites, observed: Observed, now: float) -> PlannedWrites:
    """The writes without those that were refused and wait for their back-off."""
    deletes, deletes_due = changes.due_writes(list(writes.deletes), observed, now)
    patches, patches_due = changes.due_writes(list(writes.patches), observed, now)
    creates, creates_due = changes.due_writes(list(writes.creates), observed, now)
    later = tuple(due for due in (deletes_due, patches_due, creates_due) if due is not None)
    return PlannedWrites(tuple(deletes), tuple(patches), tuple(creates), writes.wakeups + later)
