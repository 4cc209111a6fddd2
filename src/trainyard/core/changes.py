"""The creates, deletes and patches that bring the children to the state that the spec describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from trainyard.core.job_state import OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.model import AuxiliaryObject, Child, Observed, PlannedCreate, Slot
from trainyard.core.names import same_digest
from trainyard.core.refusals import write_due_at
from trainyard.core.render import update_patch
from trainyard.objects import Ref
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete, Patch

FEW_CREATES = 8
"""Of a job with so few Pods and Services no Service is created before all Pods exist: the Pod of a one-pod job came
after 27 ms instead of 37 when its Service was not created beside it."""

WAKE_SECONDS = 20.0
"""Between two patches of an object whose scheduler looks at its pods again only when it changes."""

W = TypeVar("W", PlannedCreate, Patch, Delete)


def missing_creates(job: Job, owned: OwnedObjects) -> tuple[PlannedCreate, ...]:
    """Creates for the slots and auxiliary objects that do not exist, in creation order.

    All replicas come before their Services: pods take seconds to be scheduled and to start, and kube-controller-manager
    spends more on the endpoints of a Service than the operator on its Pod. Of a large job the Service of the first
    replica, by whose name the others meet, comes right after it. With an invalid spec no auxiliary object with
    `create_after_replicas` is created: the replicas do not need it. `owned`: the children that the job was observed
    with.
    """
    creates: tuple[PlannedCreate, ...] = job.cached("missing_creates", lambda: tuple(_missing_creates(job, owned)))
    return creates


def _missing_creates(job: Job, owned: OwnedObjects) -> list[PlannedCreate]:
    blocking = blocking_refs(job, owned)

    def missing(dependencies: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(ref for ref in dependencies if not exists(job, owned, ref) or ref in blocking)

    early: list[PlannedCreate] = []
    late: list[PlannedCreate] = []
    by_slot: dict[Slot, list[PlannedCreate]] = {}
    for ref, auxiliary in job.auxiliary_objects.items():
        if exists(job, owned, ref) or (auxiliary.create_after_replicas and job.parsed.problems):
            continue
        create = PlannedCreate(auxiliary.gvk, auxiliary.name, None, 0, missing(auxiliary.depends_on))
        if auxiliary.slot:
            by_slot.setdefault(auxiliary.slot, []).append(create)
        else:
            (late if auxiliary.create_after_replicas else early).append(create)
    replicas: list[PlannedCreate] = []
    services: list[PlannedCreate] = []
    for slot in job.slots():
        role, name = job.role(slot.role), job.kind.pods.name(job, slot)
        gvk = job.carrier(slot.role).gvk
        waits = job.kind.pods.awaits(job, slot)
        if role and role.template is not None and Ref(gvk.kind, name) not in owned.by_ref and not waits:
            depends_on = missing(job.kind.pods.dependencies(job, slot))
            replicas.append(PlannedCreate(gvk, name, slot, job.status.role(slot.role).attempt, depends_on))
        services += by_slot.get(slot, ())
    ordered = replicas + services
    if len(ordered) > FEW_CREATES:
        ordered = replicas[:1] + services[:1] + replicas[1:] + services[1:]
    return _in_dependency_order(early + ordered) + late


def exists(job: Job, owned: OwnedObjects, ref: Ref) -> bool:
    """Whether the child exists: it is observed, or what is created after it is (AuxiliaryObject.exists_with)."""
    if ref in owned.by_ref:
        return True
    auxiliary = job.auxiliary_objects.get(ref)
    return auxiliary is not None and auxiliary.exists_with in owned.by_ref


def blocking_refs(job: Job, owned: OwnedObjects) -> set[Ref]:
    """The auxiliary objects whose phase blocks what depends on them (AuxiliaryObject.blocking_phases). One that is not
    created yet has the phase ""."""
    return {
        ref
        for ref, auxiliary in job.auxiliary_objects.items()
        if auxiliary.blocking_phases
        and (owned.by_ref[ref].phase if ref in owned.by_ref else "") in auxiliary.blocking_phases
    }


def _in_dependency_order(creates: list[PlannedCreate]) -> list[PlannedCreate]:
    """The creates, sorted so that each comes after those in its `depends_on`."""
    if not any(create.depends_on for create in creates):
        return creates
    ordered: list[PlannedCreate] = []
    rest = creates
    while rest:
        waiting = {create.ref for create in rest}
        ready = [create for create in rest if not waiting.intersection(create.depends_on)]
        ordered += ready
        rest = [create for create in rest if waiting.intersection(create.depends_on)] if ready else []
    return ordered


def sendable_creates(
    job: Job, owned: OwnedObjects, creates: Sequence[PlannedCreate], observed: Observed
) -> Sequence[PlannedCreate]:
    """The creates that may be sent now: none that depends on a refused object, none while an older pod of its slot may
    run.

    Two pods of one slot would write the same checkpoint. In a gang, an older pod of any slot delays the creates of all
    slots (S33). A pod on a lost node is deleted only with --node-lost-timeout.
    """
    older = blocking_pods(job, owned)
    not_created = {ref for ref, refusal in observed.refused.items() if refusal.verb == "create"}
    not_created |= blocking_refs(job, owned)
    if not (older or not_created):
        return creates
    slots = {Slot(child.role, child.index) for child in older}
    sendable = []
    for create in creates:
        has_older_pod = create.slot is not None and bool(older) and (job.restarts_gang() or create.slot in slots)
        if has_older_pod or not_created.intersection(create.depends_on):
            not_created.add(create.ref)
        else:
            sendable.append(create)
    return sendable


def blocking_pods(job: Job, owned: OwnedObjects) -> list[Child]:
    """Pods that may still run: unfinished pods whose Job is gone and, in a gang, the children of older attempts."""
    older = [pod for pod in owned.pods_without_owner if pod.index >= 0 and pod.phase not in ("Succeeded", "Failed")]
    if job.restarts_gang():
        children = slot_children(job, owned)
        older += [child for child in children if child.attempt < job.status.role(child.role).attempt]
    return older


def stale_deletes(job: Job, owned: OwnedObjects) -> list[Delete]:
    """Deletes for children of an older attempt, unless they succeeded, and of slots that the job no longer has."""
    deletes = []
    slots = set(job.slots())
    for child in slot_children(job, owned):
        slot = Slot(child.role, child.index)
        removed = slot not in slots
        stale = child.attempt < job.status.role(child.role).attempt
        if child.deleting or not (removed or stale):
            continue
        if not removed and job.carrier(slot.role).observe(job, slot, owned).state == "Succeeded":
            continue
        reason = "the spec does not have it any more" if removed else "a new attempt takes its place"
        deletes.append(keep_name(delete_child(job, child, reason)))
    return deletes


def slot_restart_deletes(job: Job, replicas: Iterable[Replica]) -> list[Delete]:
    """Deletes for slots that restart alone. The status patch, which is sent first, counts their failures."""
    children = (replica.child for replica in replicas)
    return [delete_child(job, child, "another takes its place") for child in children if child and not child.deleting]


def auxiliary_changes(
    job: Job, owned: OwnedObjects, observed: Observed, now: float
) -> tuple[list[Delete], list[Patch]]:
    """Deletes for auxiliary objects that the spec no longer has, patches for those rendered from an older spec.

    Nothing is deleted while part of the spec is ignored: the spec then does not describe the running job. With an
    invalid spec nothing is patched, unless edits take effect on no role of the job (Lifecycle.follows_edits). An object
    with `depends_on` is patched once each of these children exists or was refused.
    """
    valid = not job.parsed.problems
    followed = valid and all(role.template is not None for role in job.roles)
    follows_edits = any(job.kind.lifecycle.follows_edits(role.name) for role in job.roles)
    auxiliary_objects = job.auxiliary_objects
    deletes, patches = [], []
    carrier_kinds = {job.carrier(role.name).gvk.kind for role in job.roles}
    for ref, child in owned.by_ref.items():
        auxiliary = auxiliary_objects.get(ref)
        if child.deleting or child.index >= 0 or child.kind in carrier_kinds:
            continue
        if auxiliary is None:
            if followed:
                deletes.append(delete_child(job, child, "the spec does not have it any more"))
        elif any(
            not exists(job, owned, dependency) and dependency not in observed.refused
            for dependency in auxiliary.depends_on
        ):
            continue
        elif valid or not follows_edits:
            stored, wake = child.digest.partition(".")[0], _wake_digest(auxiliary, owned, now)
            if not same_digest(stored, auxiliary.digest) or (wake and child.digest != wake):
                patches.append(update_patch(auxiliary, child, wake or auxiliary.digest))
    return deletes, patches


def _wake_digest(auxiliary: AuxiliaryObject, owned: OwnedObjects, now: float) -> str:
    """The digest with the number of this period of WAKE_SECONDS, so that the object changes once in each; "" unless its
    scheduler sleeps (AuxiliaryObject.asleep_text)."""
    return f"{auxiliary.digest}.{int(now // WAKE_SECONDS)}" if _is_asleep(auxiliary, owned) else ""


def _is_asleep(auxiliary: AuxiliaryObject, owned: OwnedObjects) -> bool:
    text = auxiliary.asleep_text
    if text is None:
        return False
    pods = (pod for pods in owned.pods_by_owner.values() for pod in pods if not pod.deleting)
    messages = [pod.message for pod in pods if pod.phase == "Pending" and pod.reason == "Unschedulable"]
    return bool(messages) and all(text.search(message) for message in messages)


def wake_due(job: Job, owned: OwnedObjects, now: float) -> float | None:
    """When the next patch is due that wakes the scheduler of a waiting gang, None when it does not sleep."""
    is_asleep = any(
        ref in owned.by_ref and _is_asleep(auxiliary, owned) for ref, auxiliary in job.auxiliary_objects.items()
    )
    return (now // WAKE_SECONDS + 1) * WAKE_SECONDS if is_asleep else None


def slot_children(job: Job, owned: OwnedObjects) -> list[Child]:
    """The children that run slots."""
    return [
        child for child in owned.by_ref.values() if child.index >= 0 and child.kind == job.carrier(child.role).gvk.kind
    ]


def is_removed(job: Job, child: Child) -> bool:
    """True when the roles in the status do not have the slot of the child."""
    return bool(job.status.roles) and child.index >= job.status.role(child.role).replicas


def suspended_deletes(job: Job, owned: OwnedObjects, reason: str) -> list[Delete]:
    """Deletes for the auxiliary objects that do not exist while the job is suspended."""
    children = (
        owned.by_ref.get(ref) for ref, auxiliary in job.auxiliary_objects.items() if auxiliary.deleted_on_suspend
    )
    return [delete_child(job, child, reason) for child in children if child and not child.deleting]


def delete_child(job: Job, child: Child, reason: str) -> Delete:
    """The delete of a child by its uid; `reason` is for the event and the log."""
    gvk = job.kind.resource(child.kind, job.config)
    return Delete(gvk, child.namespace, child.name, child.uid, reason=reason)


def keep_name(delete: Delete) -> Delete:
    """The delete after which the name stays taken until no pod of the object runs: in the foreground. The name of a
    Pod stays taken anyway until its kubelet has confirmed that it ended; a finalizer that the garbage collector removes
    from each Pod would cost two more requests, and a gang of 1,000 seconds."""
    return delete if delete.gvk == POD else replace(delete, propagation="Foreground")


def due_writes(writes: list[W], observed: Observed, now: float) -> tuple[list[W], float | None]:
    """The writes that are due now, and when the next one that waits for its back-off is due."""
    if not observed.refused:
        return writes, None
    times = [write_due_at(observed.refused.get(write.ref), write.verb, now) for write in writes]
    due = [write for write, at in zip(writes, times, strict=True) if at <= now]
    return due, min((at for at in times if at > now), default=None)
