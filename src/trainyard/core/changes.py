"""The creates, deletes and patches that bring the children to the wanted state. Nothing here judges the job."""

from __future__ import annotations

from typing import TypeVar

from trainyard.core.job import Family, Job, Replica
from trainyard.core.judge import STOPS
from trainyard.core.model import POD, Child, Create, Delete, Patch, Ref, Seen, Slot
from trainyard.core.names import same_digest
from trainyard.core.policy import sent_again_at
from trainyard.core.render import repair

W = TypeVar("W", Create, Patch, Delete)


def missing(job: Job, family: Family) -> list[Create]:
    """Creates for the slots and extras that have no object, in creation order.

    With an invalid spec late extras are not created: the replicas can do without them.
    """
    early: list[Create] = []
    late: list[Create] = []
    for ref, extra in job.extras.items():
        known = not (extra.late and job.wanted.problems)
        if known and ref not in family.by_ref:
            (late if extra.late else early).append(
                Create(extra.gvk, extra.name, None, 0, _lacking(extra.needs, family))
            )
    slots = []
    for slot in job.slots():
        role, name = job.role(slot.role), job.kind.child_name(job, slot)
        gvk = job.carrier(slot.role).gvk
        if role and role.template is not None and Ref(gvk.kind, name) not in family.by_ref:
            needs = _lacking(job.kind.needs(job, slot), family)
            slots.append(Create(gvk, name, slot, job.memory.role(slot.role).attempt, needs))
    return _in_order(early + slots) + late


def _lacking(needs: tuple[Ref, ...], family: Family) -> tuple[Ref, ...]:
    return tuple(ref for ref in needs if ref not in family.by_ref)


def _in_order(creates: list[Create]) -> list[Create]:
    """Sort the creates so that each comes after those it needs."""
    ordered: list[Create] = []
    rest = creates
    while rest:
        waiting = {create.ref for create in rest}
        ready = [create for create in rest if not waiting.intersection(create.needs)]
        ordered += ready
        rest = [create for create in rest if waiting.intersection(create.needs)] if ready else []
    return ordered


def startable(job: Job, family: Family, creates: list[Create], seen: Seen) -> list[Create]:
    """The creates that may be sent now: none that needs a refused object, none while an older pod of its slot may run.

    Two pods of one slot would write the same checkpoint. In a gang, an older pod of any slot holds back every slot
    (S33). A pod on a lost node is deleted only with --node-lost-timeout.
    """
    older, held = older_pods(job, family), {ref for ref, refusal in seen.refused.items() if refusal.verb == "create"}
    if not (older or held):
        return creates
    slots = {Slot(child.role, child.index) for child in older}
    chosen = []
    for create in creates:
        stands_beside = create.slot is not None and bool(older) and (job.whole_again() or create.slot in slots)
        if stands_beside or held.intersection(create.needs):
            held.add(create.ref)
        else:
            chosen.append(create)
    return chosen


def older_pods(job: Job, family: Family) -> list[Child]:
    """What may still run: unfinished pods whose Job is gone and, in a gang, the children of older attempts."""
    older = [pod for pod in family.orphans if pod.index >= 0 and pod.phase not in ("Succeeded", "Failed")]
    if job.whole_again():
        children = _slot_children(job, family)
        older += [child for child in children if child.attempt < job.memory.role(child.role).attempt]
    return older


def unwanted(job: Job, family: Family) -> list[Delete]:
    """Deletes for children of an older attempt, unless they succeeded, and of slots that the job no longer has."""
    deletes = []
    slots = set(job.slots())
    for child in _slot_children(job, family):
        slot = Slot(child.role, child.index)
        extra = slot not in slots
        stale = child.attempt < job.memory.role(child.role).attempt
        if child.deleting or not (extra or stale):
            continue
        if not extra and job.carrier(slot.role).observe(job, slot, family).state == "Succeeded":
            continue
        reason = "the spec does not have it any more" if extra else "a new attempt takes its place"
        deletes.append(_delete(job, child, reason)._replace(waits=True))
    return deletes


def ended(job: Job, replicas: list[Replica]) -> list[Delete]:
    """Deletes for slots that restart alone. The status, which is written first, counts their failures."""
    children = (replica.child for replica in replicas)
    return [_delete(job, one, "another takes its place") for one in children if one and not one.deleting]


def edited(job: Job, family: Family, seen: Seen) -> tuple[list[Delete], list[Patch]]:
    """Deletes for extras that the spec no longer has, patches for extras rendered from an older spec.

    Nothing is deleted while part of the spec is ignored: the spec then does not describe the running job. With an
    invalid spec nothing is patched, unless no role of the kind follows edits. An extra that needs other children is
    patched once each of these exists or was refused.
    """
    known = not job.wanted.problems
    followed = known and all(role.template is not None for role in job.roles)
    shaped = any(job.kind.follows(role.name) for role in job.roles)
    extras = job.extras
    deletes, patches = [], []
    carried = {job.carrier(role.name).gvk.kind for role in job.roles}
    for ref, child in family.by_ref.items():
        extra = extras.get(ref)
        if child.deleting or child.index >= 0 or child.kind in carried:
            continue
        if extra is None:
            if followed:
                deletes.append(_delete(job, child, "the spec does not have it any more"))
        elif any(one not in family.by_ref and one not in seen.refused for one in extra.needs):
            continue
        elif not same_digest(child.digest, extra.digest) and (known or not shaped):
            patches.append(repair(extra, child.uid))
    return deletes, patches


def sweep(job: Job, family: Family, clean: str, reason: str, resumes: bool = False) -> tuple[list[Delete], list[Patch]]:
    """Deletes and patches that stop or remove children after the end (cleanPodPolicy) or while the job is suspended
    (S3, S4, S5). `resumes`: the slots may be filled again, so deletes use propagation Foreground.

    Children of slots that the spec had removed before are stopped under every policy.
    """
    if clean == "All":
        every = sorted(family.by_ref.values(), key=lambda child: child.index < 0)  # slots first, then extras
        return [_delete(job, child, reason) for child in every if not child.deleting], []
    deletes, patches = [], []
    for child in _slot_children(job, family):
        if clean != "Running" and not _given_up(job, child):
            continue
        carrier = job.carrier(child.role)
        replica = carrier.observe(job, Slot(child.role, child.index), family)
        write = None if carrier.ended(replica) else carrier.stop(replica, reason)
        if isinstance(write, Patch):
            patches.append(write)
        elif write:
            deletes.append(write._replace(waits=resumes))
    return deletes, patches


def _slot_children(job: Job, family: Family) -> list[Child]:
    return [one for one in family.by_ref.values() if one.index >= 0 and one.kind == job.carrier(one.role).gvk.kind]


def _given_up(job: Job, child: Child) -> bool:
    """True when the remembered roles have no such slot."""
    return bool(job.memory.roles) and child.index >= job.memory.role(child.role).replicas


def not_while_suspended(job: Job, family: Family, reason: str) -> list[Delete]:
    """Deletes for the extras that run pods, while the job is suspended."""
    found = (family.by_ref.get(ref) for ref, extra in job.extras.items() if extra.runs)
    return [_delete(job, child, reason) for child in found if child and not child.deleting]


def _delete(job: Job, child: Child, reason: str) -> Delete:
    return Delete(job.kind.resource(child.kind), child.name, child.uid, reason)


def lost(job: Job, family: Family, now: float) -> tuple[list[Delete], float | None]:
    """Force deletes for pods in Terminating longer than --node-lost-timeout past their grace period (S27).

    Also returns when the next pod is due. Without the flag nothing: two pods may then run as one replica for a while.
    """
    timeout = job.config.node_lost
    if timeout is None:
        return [], None
    going = {pod.uid: pod for pods in family.pods.values() for pod in pods if pod.deleting and pod.doomed}
    reason = f"it is still there {timeout:g} s after it should have ended: its node is lost (--node-lost-timeout)"
    gone = [pod for pod in going.values() if pod.doomed + timeout <= now]
    dues = [pod.doomed + timeout for pod in going.values() if pod.doomed + timeout > now]
    return [Delete(POD, pod.name, pod.uid, reason, 0) for pod in gone], min(dues, default=None)


def cleaning(job: Job, reason: str) -> str:
    """The effective cleanPodPolicy of a job that ended for `reason`: at least Running for a reason in STOPS (S4)."""
    return "Running" if reason in STOPS and job.policy.clean != "All" else job.policy.clean


def sent_now(writes: list[W], seen: Seen, now: float) -> tuple[list[W], float | None]:
    """The writes that are due now, and when the next of the refused ones is due."""
    if not seen.refused:
        return writes, None
    times = [sent_again_at(seen.refused.get(one.ref), verb(one), now) for one in writes]
    due = [one for one, at in zip(writes, times, strict=True) if at <= now]
    return due, min((at for at in times if at > now), default=None)


def verb(write: Create | Patch | Delete) -> str:
    return type(write).__name__.lower()
