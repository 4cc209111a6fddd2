"""What must be made, deleted or patched so that the children are those the job wants: none of it judges anything."""

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
    """Slots and extras that no child fills, in the order in which they are made.

    A spec that is not understood asks for nothing that its replicas can do without.
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
    """What is needed stands before what needs it."""
    ordered: list[Create] = []
    rest = creates
    while rest:
        waiting = {create.ref for create in rest}
        ready = [create for create in rest if not waiting.intersection(create.needs)]
        ordered += ready
        rest = [create for create in rest if waiting.intersection(create.needs)] if ready else []
    return ordered


def startable(job: Job, family: Family, creates: list[Create], seen: Seen) -> list[Create]:
    """What may be made now: not what needs something that is refused, and no replica beside an older pod of its own.

    A pod of an older attempt may run until it has gone. Two pods of one slot would be two writers of one checkpoint; of
    a gang the same holds for all its slots (S33). A pod whose node is lost goes by --node-lost-timeout.
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
    """What may still run of a slot that nothing fills: pods whose Job has gone. Of a gang also its older attempts."""
    older = [pod for pod in family.orphans if pod.index >= 0 and pod.phase not in ("Succeeded", "Failed")]
    if job.whole_again():
        children = _slot_children(job, family)
        older += [child for child in children if child.attempt < job.memory.role(child.role).attempt]
    return older


def unwanted(job: Job, family: Family) -> list[Delete]:
    """Children of an older attempt and of slots that the job does not have any more. What ended well stays."""
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
    """Slots that are made again alone: each is counted already, so what held it may go."""
    children = (replica.child for replica in replicas)
    return [_delete(job, one, "another takes its place") for one in children if one and not one.deleting]


def edited(job: Job, family: Family, seen: Seen) -> tuple[list[Delete], list[Patch]]:
    """Extras after an edit of the spec: those it has no more, and those made from an older one.

    Nothing is deleted while part of the spec is not followed: it does not say then what the job has. Nothing follows a
    spec that is not understood; what no edit shapes is known all the same. What names other children follows when these
    are there, or are somebody else's.
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
    """What goes after the end (cleanPodPolicy), or while the job is suspended or stopped (S3, S4, S5). `resumes`: the
    slots may be filled again.

    What the spec had given up before does not run on, whatever the policy says.
    """
    if clean == "All":
        every = sorted(family.by_ref.values(), key=lambda child: child.index < 0)  # what runs goes first
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
    """The job had no such slot when it was looked at last."""
    return bool(job.memory.roles) and child.index >= job.memory.role(child.role).replicas


def not_while_suspended(job: Job, family: Family, reason: str) -> list[Delete]:
    """Extras that keep pods running do not stay while the job is suspended."""
    found = (family.by_ref.get(ref) for ref, extra in job.extras.items() if extra.runs)
    return [_delete(job, child, reason) for child in found if child and not child.deleting]


def _delete(job: Job, child: Child, reason: str) -> Delete:
    return Delete(job.kind.resource(child.kind), child.name, child.uid, reason)


def lost(job: Job, family: Family, now: float) -> tuple[list[Delete], float | None]:
    """Pods that are still there long after they should have ended: their node is lost, and nobody else says so (S27).

    And when the next one will be. Only with --node-lost-timeout: two pods may run as the same replica for a while.
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
    """What cleanPodPolicy means for a job that ended for that reason: one that was stopped does not run on (S4)."""
    return "Running" if reason in STOPS and job.policy.clean != "All" else job.policy.clean


def sent_now(writes: list[W], seen: Seen, now: float) -> tuple[list[W], float | None]:
    """Those that are due, and when the first of the others is."""
    if not seen.refused:
        return writes, None
    times = [sent_again_at(seen.refused.get(one.ref), verb(one), now) for one in writes]
    due = [one for one, at in zip(writes, times, strict=True) if at <= now]
    return due, min((at for at in times if at > now), default=None)


def verb(write: Create | Patch | Delete) -> str:
    return type(write).__name__.lower()
