"""The creates, deletes and patches that bring the children to the state that the spec describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trainyard.core.job import Job, OwnedObjects, Replica
from trainyard.core.model import Child, Create, Delete, Observed, Patch, Ref, Slot
from trainyard.core.names import same_digest
from trainyard.core.refusals import write_due_at
from trainyard.core.render import update_patch

W = TypeVar("W", Create, Patch, Delete)


def missing_creates(job: Job, owned: OwnedObjects) -> list[Create]:
    """Creates for the slots and extras that have no object, in creation order.

    With an invalid spec late extras are not created: the replicas can do without them.
    """
    early: list[Create] = []
    late: list[Create] = []
    for ref, extra in job.auxiliary_objects.items():
        known = not (extra.create_after_replicas and job.parsed.problems)
        if known and ref not in owned.by_ref:
            (late if extra.create_after_replicas else early).append(
                Create(extra.gvk, extra.name, None, 0, _lacking(extra.depends_on, owned))
            )
    slots = []
    for slot in job.slots():
        role, name = job.role(slot.role), job.kind.child_name(job, slot)
        gvk = job.carrier(slot.role).gvk
        if role and role.template is not None and Ref(gvk.kind, name) not in owned.by_ref:
            needs = _lacking(job.kind.dependencies(job, slot), owned)
            slots.append(Create(gvk, name, slot, job.status.role(slot.role).attempt, needs))
    return _in_order(early + slots) + late


def _lacking(needs: tuple[Ref, ...], owned: OwnedObjects) -> tuple[Ref, ...]:
    return tuple(ref for ref in needs if ref not in owned.by_ref)


def _in_order(creates: list[Create]) -> list[Create]:
    """Sort the creates so that each comes after those it needs."""
    ordered: list[Create] = []
    rest = creates
    while rest:
        waiting = {create.ref for create in rest}
        ready = [create for create in rest if not waiting.intersection(create.depends_on)]
        ordered += ready
        rest = [create for create in rest if waiting.intersection(create.depends_on)] if ready else []
    return ordered


def startable(job: Job, owned: OwnedObjects, creates: list[Create], observed: Observed) -> list[Create]:
    """The creates that may be sent now: none that needs a refused object, none while an older pod of its slot may run.

    Two pods of one slot would write the same checkpoint. In a gang, an older pod of any slot holds back every slot
    (S33). A pod on a lost node is deleted only with --node-lost-timeout.
    """
    older, held = older_pods(job, owned), {ref for ref, refusal in observed.refused.items() if refusal.verb == "create"}
    if not (older or held):
        return creates
    slots = {Slot(child.role, child.index) for child in older}
    chosen = []
    for create in creates:
        stands_beside = create.slot is not None and bool(older) and (job.restarts_gang() or create.slot in slots)
        if stands_beside or held.intersection(create.depends_on):
            held.add(create.ref)
        else:
            chosen.append(create)
    return chosen


def older_pods(job: Job, owned: OwnedObjects) -> list[Child]:
    """What may still run: unfinished pods whose Job is gone and, in a gang, the children of older attempts."""
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
        extra = slot not in slots
        stale = child.attempt < job.status.role(child.role).attempt
        if child.deleting or not (extra or stale):
            continue
        if not extra and job.carrier(slot.role).observe(job, slot, owned).state == "Succeeded":
            continue
        reason = "the spec does not have it any more" if extra else "a new attempt takes its place"
        deletes.append(delete_child(job, child, reason)._replace(foreground=True))
    return deletes


def slot_restarts(job: Job, replicas: Iterable[Replica]) -> list[Delete]:
    """Deletes for slots that restart alone. The status, which is written first, counts their failures."""
    children = (replica.child for replica in replicas)
    return [delete_child(job, one, "another takes its place") for one in children if one and not one.deleting]


def auxiliary_changes(job: Job, owned: OwnedObjects, observed: Observed) -> tuple[list[Delete], list[Patch]]:
    """Deletes for extras that the spec no longer has, patches for extras rendered from an older spec.

    Nothing is deleted while part of the spec is ignored: the spec then does not describe the running job. With an
    invalid spec nothing is patched, unless no role of the kind follows edits. An extra that needs other children is
    patched once each of these exists or was refused.
    """
    known = not job.parsed.problems
    followed = known and all(role.template is not None for role in job.roles)
    shaped = any(job.kind.on_template_change(role.name) for role in job.roles)
    extras = job.auxiliary_objects
    deletes, patches = [], []
    carried = {job.carrier(role.name).gvk.kind for role in job.roles}
    for ref, child in owned.by_ref.items():
        extra = extras.get(ref)
        if child.deleting or child.index >= 0 or child.kind in carried:
            continue
        if extra is None:
            if followed:
                deletes.append(delete_child(job, child, "the spec does not have it any more"))
        elif any(one not in owned.by_ref and one not in observed.refused for one in extra.depends_on):
            continue
        elif not same_digest(child.digest, extra.digest) and (known or not shaped):
            patches.append(update_patch(extra, child.uid))
    return deletes, patches


def slot_children(job: Job, owned: OwnedObjects) -> list[Child]:
    return [one for one in owned.by_ref.values() if one.index >= 0 and one.kind == job.carrier(one.role).gvk.kind]


def is_removed(job: Job, child: Child) -> bool:
    """True when the remembered roles have no such slot."""
    return bool(job.status.roles) and child.index >= job.status.role(child.role).replicas


def suspended_deletes(job: Job, owned: OwnedObjects, reason: str) -> list[Delete]:
    """Deletes for the extras that run pods, while the job is suspended."""
    found = (owned.by_ref.get(ref) for ref, extra in job.auxiliary_objects.items() if extra.runs_pods)
    return [delete_child(job, child, reason) for child in found if child and not child.deleting]


def delete_child(job: Job, child: Child, reason: str) -> Delete:
    return Delete(job.kind.resource(child.kind), child.name, child.uid, reason)


def due_writes(writes: list[W], observed: Observed, now: float) -> tuple[list[W], float | None]:
    """The writes that are due now, and when the next of the refused ones is due."""
    if not observed.refused:
        return writes, None
    times = [write_due_at(observed.refused.get(one.ref), verb(one), now) for one in writes]
    due = [one for one, at in zip(writes, times, strict=True) if at <= now]
    return due, min((at for at in times if at > now), default=None)


def verb(write: Create | Patch | Delete) -> str:
    return type(write).__name__.lower()
