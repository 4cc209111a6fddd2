"""`cleanPodPolicy`: which children of a finished or suspended job are stopped or deleted (docs/rules.md S3, S4, S5)."""

from __future__ import annotations

from trainyard.core.changes import delete_child, is_removed, keep_name, slot_children
from trainyard.core.job_state import CleanPodPolicy, OwnedObjects
from trainyard.core.kind import Job
from trainyard.core.model import Slot
from trainyard.core.policies.restart_limit import EXCEEDED
from trainyard.objects.writes import Delete, Patch

LIMITS = frozenset({"BackoffLimitExceeded", "DeadlineExceeded", EXCEEDED})
"""Causes of a failure after which a kind with `limits_stop_pods` stops running children under every cleanPodPolicy."""


def effective_policy(job: Job, cause: str) -> CleanPodPolicy:
    """The policy of a job that ended for `cause`: at least Running after a limit (S4), and for an invalid child."""
    stops = cause == "InvalidChild" or (cause in LIMITS and job.kind.lifecycle.limits_stop_pods)
    return "Running" if stops and job.policy.clean_pod_policy != "All" else job.policy.clean_pod_policy


def clean_pods(
    job: Job, owned: OwnedObjects, policy: CleanPodPolicy, reason: str, resumes: bool = False
) -> tuple[list[Delete], list[Patch]]:
    """Deletes and patches that stop or remove children under `policy`.

    `resumes`: the job may resume, so the names stay taken until the pods are gone.
    Children of slots that the status does not have any more are stopped under every policy.
    """
    if policy == "All":
        children = sorted(owned.by_ref.values(), key=lambda child: child.index < 0)  # slots, then auxiliary objects
        return [delete_child(job, child, reason) for child in children if not child.deleting], []
    deletes, patches, stopped = [], [], set()
    for child in slot_children(job, owned):
        if policy != "Running" and not is_removed(job, child):
            continue
        carrier = job.carrier(child.role)
        replica = carrier.observe(job, Slot(child.role, child.index), owned)
        write = None if carrier.pods_ended(replica) else carrier.stop(replica, reason)
        if isinstance(write, Patch):
            patches.append(write)
        elif write:
            deletes.append(keep_name(write) if resumes else write)
            stopped.add(Slot(child.role, child.index))
    for ref, auxiliary in job.auxiliary_objects.items():
        object_of_slot = owned.by_ref.get(ref) if auxiliary.deleted_with_slot and auxiliary.slot in stopped else None
        if object_of_slot and not object_of_slot.deleting:
            deletes.append(delete_child(job, object_of_slot, reason))
    for ref, auxiliary in job.auxiliary_objects.items():
        object_of_job = owned.by_ref.get(ref) if auxiliary.deleted_at_end and not resumes else None
        if object_of_job and not object_of_job.deleting:
            deletes.append(delete_child(job, object_of_job, reason))
    return deletes, patches
