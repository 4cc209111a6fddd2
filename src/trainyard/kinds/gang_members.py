"""Which pods a gang has at a time, whichever scheduler places it.

kube-scheduler and Coscheduling count no pod that has ended: a gang that asks for more pods than there are waits for
ever.
"""

from __future__ import annotations

from trainyard.core import Job, Slot


def living_members(job: Job) -> dict[str, int]:
    """Role -> the number of its pods that are there or are being created, and have not ended for good."""
    return _counts(job, with_ended=False)


def group_members(job: Job) -> dict[str, int]:
    """As living_members, without pods that are in no PodGroup of Kubernetes: an operator without gangs made them."""
    counts = living_members(job)
    for slot in job.ungrouped - job.ended:
        counts[slot.role] -= pods_of(job, slot)
    return counts


def started_members(job: Job) -> dict[str, int]:
    """Role -> the number of its pods that are there or are being created, ended ones too, which Volcano counts as ready
    when they have succeeded."""
    return _counts(job, with_ended=True)


def _counts(job: Job, *, with_ended: bool) -> dict[str, int]:
    counts = dict.fromkeys((role.name for role in job.roles), 0)
    for slot in job.slots():
        if not _is_awaiting(job, slot) and (with_ended or slot not in job.ended):
            counts[slot.role] += pods_of(job, slot)
    return counts


def pods_of(job: Job, slot: Slot) -> int:
    """The number of pods that the object of the slot runs."""
    role = job.role(slot.role)
    return role.replicas if role and job.carrier(slot.role).one_object_per_role else 1


def start_together(members: dict[str, int], fewest: int | None) -> int:
    """How many of these members start together: all, or at most the fewest with which the job runs."""
    total = sum(members.values())
    return max(1, total if fewest is None else min(total, fewest))


def _is_awaiting(job: Job, slot: Slot) -> bool:
    """Whether the slot has no pod before others run: the launcher of an MPIJob with WaitForWorkersReady."""
    return slot not in job.present and job.kind.pods.awaits(job, slot)
