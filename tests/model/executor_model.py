"""The executor on a small world: the order of writes of `control.reconcile`, and what each write must never do.

A pass is carried out whole, or the operator dies after its k-th write, or the write after it is answered with 503. A
spec patch goes alone; else the status goes first (the fence: always sent when anything is to be written, refused when
the job was written since), then deletes by uid, then patches, then creates. `ExecutorModel` holds the switches that the
planted bugs turn.

Own writes: after a pass the real executor waits until its own child writes have arrived in its stores. A store holds
one resource, and one that has our write has everything of that resource before it. So a remembered view of the children
is brought up to our own write, resource by resource (`_arrived`); what others did later, and other resources, stay
stale. Only an operator that was restarted since may look at the view as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.plan_cache import (
    Drop,
    Fix,
    Make,
    PlanCache,
    PlannedWrites,
    Snapshot,
    foreign_name,
    holds,
    merged,
)
from tests.model.world import Batch, ChildState, OtherChild, Pod, Set, World, fills, ordered, resource
from trainyard.objects import Json, Ref

ALL = 99
REFUSED, MADE = "refused", "made"
PAUSE = 10
"""Seconds that an attempt runs at least until it has made progress, and from its start until it is made again alone."""
LONGEST_PAUSE = 360


def pause_after(attempts: int) -> int:
    """Seconds from the end of an attempt to the next one, after so many in a row without progress (S46)."""
    return min(PAUSE << (attempts - 2), LONGEST_PAUSE) if attempts > 1 else 0


class ExecutorModel(NamedTuple):
    """The executor's habits; the defaults are the real ones."""

    fence: str = "always"  # always, on change, never
    by_uid: bool = True
    keeps: bool = True  # AlreadyExists is not overwritten
    background: bool = True  # deletes take the pods along
    foreground: bool = True  # what fills a slot stays until its pods have gone
    versioned: bool = True  # the spec patch names the resourceVersion
    waits: bool = True  # for its own child writes to arrive
    looks: bool = True  # for a create that had no answer, before it writes anything else


class Outcome(NamedTuple):
    world: World
    broken: list[str]
    writes: int  # how many were sent
    wanted: int  # how many the plan had


def apply_plan(
    cache: PlanCache, world: World, snapshot: Snapshot, limit: int, executor: ExecutorModel, error: str = ""
) -> Outcome:
    """One pass. After the write `limit` the operator dies or, with an `error`, the next write is answered with 503:
    REFUSED, or MADE although it was made."""
    view = world.view
    if view is not None and view.unanswered and view.waits and snapshot.current:
        world = world._replace(view=None)  # the stores have caught up
    act = cache.planned_writes(world, snapshot)
    if act.idle:
        return Outcome(world, [], 0, 0)
    if not snapshot.current and executor.looks and (awaited := _with_unanswered(world, act)):
        return Outcome(awaited, [], 0, 1)
    if act.spec_patch:
        return _patch_spec(cache, world, snapshot, act, executor)
    wanted = 1 + len(act.deletes) + len(act.patches) + len(act.creates)
    changes = act.status != snapshot.status
    if not snapshot.fresh and (executor.fence == "always" or (executor.fence == "on change" and changes)):
        return Outcome(world, [], 0, wanted)
    broken = _why_not_decided(cache, snapshot, act)
    before = world
    if changes:
        world = _counted(cache, written(world._replace(status=act.status)), before, snapshot)
        world = _tried_again(cache, world, before, broken)
    if snapshot.current and limit == ALL:
        broken += _why_not_waited(cache, world, before)
    world = _met(cache, world, snapshot)
    sent = min(limit, wanted)
    writes: list[Drop | Fix | Make] = [*act.deletes, *act.patches, *act.creates]
    created: set[Ref] = set()
    for number, write in enumerate(writes[: sent - 1 + (error == MADE)], 1):
        if number == sent:
            world = _arrived(before, world, writes[: sent - 1], executor)
        if isinstance(write, Drop):
            world = _delete(cache, world, snapshot, write, executor, broken)
        elif isinstance(write, Fix):
            world = _patch(cache, world, write, broken)
        elif created.issuperset(write.depends_on):  # else one of them was refused: the next pass says so
            world = _create(cache, world, snapshot, write, executor, broken)
            if (write.kind, write.name) not in {refusal[:2] for refusal in world.refused}:
                created.add(Ref(write.kind, write.name))
    if sent < wanted and not error:
        return Outcome(restarted(world), broken, sent, wanted)
    if sent < wanted and error == MADE:
        return Outcome(_unanswered(world, writes[sent - 1]), broken, sent, wanted)
    return Outcome(_arrived(before, world, writes[: sent - 1], executor), broken, sent, wanted)


def _unanswered(world: World, write: Drop | Fix | Make) -> World:
    """An old view may not have this write."""
    view = world.view
    if view is None or not isinstance(write, Make):
        return world
    unanswered = tuple(sorted({*view.unanswered, (write.kind, write.name, write.attempt)}))
    return world._replace(view=view._replace(unanswered=unanswered))


def _with_unanswered(world: World, act: PlannedWrites) -> World | None:
    """A create without an answer that is not planned again is looked for, and awaited if it was made; None: there is
    none."""
    view = world.view
    if view is None or not view.unanswered or not view.waits:
        return None
    planned = {(make.kind, make.name, make.attempt) for make in act.creates}
    kinds = {create[0] for create in view.unanswered if create not in planned}
    return _up_to_date(world, kinds) if kinds else None


def _up_to_date(world: World, kinds: set[str]) -> World:
    """The remembered children are as new as these, for these resources."""
    view = world.view
    if view is None:
        return world
    kept = [obj for obj in view.children if resource(obj) not in kinds]
    new = [obj for obj in world.children if resource(obj) in kinds]
    unanswered = tuple(create for create in view.unanswered if create[0] not in kinds)
    return world._replace(view=view._replace(children=ordered([*kept, *new]), unanswered=unanswered))


def _counted(cache: PlanCache, world: World, before: World, snapshot: Snapshot) -> World:
    """With the restarts that the annotation `restart-limit` limits: a failure is restarted when nothing of it is left,
    or of a gang with its new attempt."""
    if cache.scenario.restart_limit is None:
        return world
    old, new, truth = cache.facts(before.status), cache.facts(world.status), world.truth
    pods = [pod for pod in snapshot.children if isinstance(pod, Pod) and pod.phase == "Failed" and not pod.disrupted]
    if cache.scenario.gang:
        standing = len([pod for pod in pods if pod.attempt >= new.attempts[pod.slot]])
    else:
        standing = len([pod for pod in pods if not pod.deleting])
    pending = min(standing, 1) if cache.scenario.gang else standing
    stalls = dict(new.causes).get("stall", 0) - dict(old.causes).get("stall", 0)
    restarts = truth.pending + sum(new.failures) - sum(old.failures) - pending
    times = (world.now,) * (max(0, restarts) + stalls)
    return world._replace(truth=truth._replace(restarts=(*truth.restarts, *times), pending=pending))


def _why_not_waited(cache: PlanCache, world: World, before: World) -> list[str]:
    """A restart that is due is made: the first one, and each after progress, at once."""
    old, new = cache.facts(before.status), cache.facts(world.status)
    waits = new.attempts[0] == old.attempts[0] and 0 < before.truth.wait <= world.now
    if not waits or new.end or new.suspended or cache.scenario.styles[0] not in ("judged", "alone"):
        return []
    return ["a restart that was due was not made"]


def _why_not_decided(cache: PlanCache, snapshot: Snapshot, act: PlannedWrites) -> list[str]:
    """Success beats failure (S13)."""
    before, after = cache.facts(snapshot.status), cache.facts(act.status)
    if after.end != "Failed" or before.end or after.reason == "InvalidSpec":
        return []
    holders = [obj for obj in snapshot.children if not isinstance(obj, OtherChild) and _ended_well(obj)]
    succeeded = frozenset(obj.slot for obj in holders if obj.attempt >= before.attempts[obj.slot])
    succeeds = cache.scenario.succeeds(succeeded, cache.wants(snapshot.spec))
    return ["the job failed although what decides has succeeded"] if succeeds else []


def _ended_well(obj: ChildState) -> bool:
    return (isinstance(obj, Batch) and obj.phase == "Complete") or (
        isinstance(obj, Pod) and obj.alone and obj.phase == "Succeeded"
    )


def _tried_again(cache: PlanCache, world: World, before: World, broken: list[str]) -> World:
    """A new attempt: of a gang, what the one before came to is of no matter any more."""
    old, new, truth = cache.facts(before.status), cache.facts(world.status), world.truth
    if new.end or new.attempts == old.attempts:
        return world
    if new.resumes > old.resumes:
        truth = truth._replace(rows=(), next_row=None)
    elif world.now < truth.wait and new.attempts[0] > old.attempts[0]:
        broken.append(
            f"{'the gang' if cache.scenario.gang else 'the MASTER'} was tried again before its back-off was over"
        )
    if new.attempts[0] > old.attempts[0]:
        row = truth.row(0) if truth.next_row is None else truth.next_row
        truth = truth.with_row(0, row, len(cache.scenario.roles))._replace(wait=0, next_row=None)
    if cache.scenario.gang:
        truth = truth._replace(done=(), permanent=False, met=(), lost=False, causes=())
    return world._replace(truth=truth)


def _met(cache: PlanCache, world: World, snapshot: Snapshot) -> World:
    """The operator has seen all replicas of a gang run in one attempt, and its status can tell."""
    facts, wants = cache.facts(world.status), cache.wants(world.spec)
    if not cache.scenario.gang or facts.end or facts.suspended or facts.has != wants:
        return world
    pods = [pod for pod in snapshot.children if isinstance(pod, Pod) and pod.phase == "Running" and not pod.deleting]
    running = {pod.uid if pod.alone else pod.owner for pod in pods if not pod.ownerless}
    ours = [
        obj
        for obj in snapshot.children
        if isinstance(obj, Batch | Pod)
        and fills(obj)
        and obj.slot in wants
        and not obj.deleting
        and obj.uid in running
        and obj.attempt == facts.attempts[obj.slot]
    ]
    if len(ours) < len(wants) or world.truth.met:
        return world
    return world._replace(truth=world.truth._replace(met=tuple(sorted(obj.uid for obj in ours))))


def restarted(world: World) -> World:
    """The operator is killed and starts again: it forgets refusals, and which writes were its own."""
    view = world.view
    if view is not None:
        view = None if view.waits else view._replace(restarted=True)
    return world._replace(view=view, refused=())


def _patch_spec(
    cache: PlanCache, world: World, snapshot: Snapshot, act: PlannedWrites, executor: ExecutorModel
) -> Outcome:
    if not snapshot.fresh and executor.versioned:
        return Outcome(world, [], 0, 1)
    stored = cache.value(world.spec)
    spec = merged(stored, act.spec_patch or {})
    broken = [] if holds(spec, stored) else ["the spec patch took back what the user wrote"]
    return Outcome(written(world._replace(spec=cache.number(spec))), broken, 1, 1)


def written(world: World) -> World:
    """The job was written by another client: the remembered view of it is stale."""
    view = world.view
    return world if view is None else world._replace(view=view._replace(fresh=False))


def _arrived(before: World, world: World, writes: list[Drop | Fix | Make], executor: ExecutorModel) -> World:
    """Our own writes are awaited: the remembered children are as new as these, for the resources written."""
    view = world.view
    if view is None or not (view.waits and executor.waits):
        return world
    if before.children == world.children and not view.unanswered:
        return world
    return _up_to_date(world, {write[0] for write in writes})


def _delete(
    cache: PlanCache, world: World, snapshot: Snapshot, drop: Drop, executor: ExecutorModel, broken: list[str]
) -> World:
    if drop.kind == cache.scenario.kind.gvk.kind:
        return _expire(cache, world, broken)
    live = cache.named(world, drop.kind, drop.name)
    if live is None or (executor.by_uid and live.uid != drop.uid):
        return world
    if isinstance(live, OtherChild):
        if live.foreign:
            broken.append("something that is not ours was deleted")
        return world.with_children(gone=(live,))
    broken += _why_not_deleted(cache, world, snapshot, live)
    for obj in (live, *world.pods(live.uid)):
        if not isinstance(obj, Set) and obj.phase == "Failed" and obj not in snapshot.children:  # after we had looked
            for uid in (live.uid, obj.uid):
                world = world.doubt(cache.failure(live.slot, uid, live.attempt))
    if isinstance(live, Pod):
        return _closed(cache, world, live).swap(live, live._replace(deleting=True))
    if executor.background and executor.foreground and drop.waits:
        return world.swap(live, live._replace(deleting=True))
    world = world.with_children(gone=(live,))
    if not executor.background:
        pods = world.pods(live.uid)
        world = world.with_children(*(pod._replace(orphan=True) for pod in pods), gone=tuple(pods))
    return world


def _closed(cache: PlanCache, world: World, pod: Pod) -> World:
    """A suspension ends the rendezvous of the workers that it stops (S35)."""
    met = rendezvous(cache, pod.body)
    if not (met and cache.facts(world.status).suspended and pod.live):
        return world
    closed = tuple(sorted({*world.truth.closed, met}))
    return world._replace(truth=world.truth._replace(closed=closed))


def rendezvous(cache: PlanCache, body: int) -> str:
    """Where a pod meets the others, "" where its kind has no such place."""
    if not cache.scenario.bodies:
        return ""
    args = cache.value(body)["spec"]["containers"][0].get("args") or []
    return next((str(arg) for arg in args if "rdzv_id" in arg), "")


def _why_not_deleted(cache: PlanCache, world: World, snapshot: Snapshot, live: Batch | Set | Pod) -> list[str]:
    facts, suspend = cache.facts(world.status), cache.scenario.is_suspended(cache.value(world.spec))
    if facts.end or world.deleting or live.slot not in cache.wants(world.spec):
        return []
    current = live.attempt >= facts.attempts[live.slot]
    pods = [live] if isinstance(live, Pod) else world.pods(live.uid)
    ends: list[ChildState] = [live] if _ended_well(live) else []
    ends += [pod for pod in pods if pod.phase == "Succeeded"]
    if any(end in snapshot.children for end in ends) and (current or not cache.scenario.gang):
        return ["a replica that ended well was deleted while the job goes on"]
    if current and not suspend and any(pod.live and not pod.deleting for pod in pods):
        return ["a running child of the current attempt was deleted"]
    if isinstance(live, Pod) and live.phase == "Failed" and not live.disrupted and live in snapshot.children:
        row = world.truth.row(cache.scenario.counts(live.slot))
        waits = current and not suspend and snapshot.current and not cache.scenario.gang and row > 1
        return _why_not_replaced(cache, world, live, waits)
    return []


def _why_not_replaced(cache: PlanCache, world: World, pod: Pod, waits: bool) -> list[str]:
    _, key = cache.failure(pod.slot, pod.uid, pod.attempt)
    if key not in cache.facts(world.status).counted and pod.slot not in cache.scenario.ignored:
        return ["a failed pod was deleted before it was counted"]
    if waits and world.now < pod.began + PAUSE:
        return ["a worker was tried again before its back-off was over"]
    return []


def _expire(cache: PlanCache, world: World, broken: list[str]) -> World:
    facts, ttl = cache.facts(world.status), cache.policies(world.spec).get("ttlSecondsAfterFinished")
    if not facts.end or ttl is None or facts.completion is None or world.now < facts.completion + ttl:
        broken.append("the job was deleted before its time to live was over")
    return written(world._replace(deleting=True))


def _create(
    cache: PlanCache, world: World, snapshot: Snapshot, make: Make, executor: ExecutorModel, broken: list[str]
) -> World:
    broken += _why_not_made(cache, world, snapshot, make)
    there = cache.named(world, make.kind, make.name)
    if foreign_name(world, make.kind, make.name):
        if not executor.keeps:
            broken.append("something that is not ours was overwritten")
            return world
        tries = next((old[2] for old in world.refused if old[:2] == (make.kind, make.name)), 0)
        other_refusals = [old for old in world.refused if old[:2] != (make.kind, make.name)]
        return world._replace(refused=tuple(sorted([*other_refusals, (make.kind, make.name, tries + 1, world.now)])))
    if there is not None:
        if executor.keeps:
            view = world.view
            is_unanswered = view and (make.kind, make.name, make.attempt) in view.unanswered
            again = snapshot.current or not ((view and view.restarted) or is_unanswered)
            again = again and make.kind not in cache.never_read
            broken += ["a child that the operator itself had made was made again"] if again else []
            return world
        broken.append("a live child was overwritten")
        world = world.with_children(gone=(there,))
    if make.slot >= 0 and too_many(cache, world):
        broken.append("a replica was made again beyond backoffLimit")
    return _made(cache, world, make)


def _made(cache: PlanCache, world: World, make: Make) -> World:
    place = make.slot if make.slot >= 0 else len(cache.scenario.slots)
    gens = list(world.gens)
    gens[place] += 1
    gen = gens[place]
    world = world._replace(gens=tuple(gens))
    if make.slot < 0:
        return world.with_children(OtherChild(make.kind, make.name, gen, body=make.body))
    if make.kind == "Pod":
        return world.with_children(Pod(make.slot, gen, 0, alone=True, attempt=make.attempt, body=make.body))
    if make.kind == "StatefulSet":
        body = cache.value(make.body)
        return world.with_children(
            Set(make.slot, gen, make.attempt, body["spec"]["replicas"], cache.number(unsized(body)))
        )
    return world.with_children(Batch(make.slot, gen, make.attempt))


def unsized(body: Json) -> Json:
    """A StatefulSet without its size, which changes."""
    return {**body, "spec": {key: value for key, value in body["spec"].items() if key != "replicas"}}


def _patch(cache: PlanCache, world: World, fix: Fix, broken: list[str]) -> World:
    live, body = cache.named(world, fix.kind, fix.name), cache.value(fix.body)
    facts, suspend = cache.facts(world.status), cache.scenario.is_suspended(cache.value(world.spec))
    uid = body.get("metadata", {}).get("uid", "")
    if isinstance(live, OtherChild | Set) and uid and uid != live.uid:
        return world  # 409: a namesake
    body = {**body, "metadata": {key: value for key, value in body.get("metadata", {}).items() if key != "uid"}}
    if isinstance(live, OtherChild):
        if live.foreign:
            broken.append("something that is not ours was changed")
        return world.swap(live, live._replace(body=cache.number(merged(cache.value(live.body), body))))
    if not isinstance(live, Set):
        return world
    size = body["spec"]["replicas"]
    if size and (facts.end or suspend):
        broken.append("a StatefulSet was started again after the end, or while suspended")
    return world.swap(live, live._replace(replicas=size))


def _why_not_made(cache: PlanCache, world: World, snapshot: Snapshot, make: Make) -> list[str]:
    broken, facts = [], cache.facts(world.status)
    if facts.end:
        broken.append("a child was made after the end")
    if cache.scenario.is_suspended(cache.value(world.spec)) and make.slot >= 0:
        broken.append("a replica was made while suspended")
    if world.deleting:
        broken.append("a child was made for a job that is being deleted")
    if make.slot < 0:
        return broken
    if make.slot not in cache.wants(world.spec):
        broken.append("a replica was made that the spec does not have")
    if snapshot.current and not cache.scenario.awaits(make.slot) <= succeeded_slots(cache, world):
        broken.append("a replica was made before what it waits for had succeeded")
    if make.attempt != facts.attempts[make.slot]:
        broken.append("a child was made of an attempt that status does not know")
    if make.kind == "Pod" and rendezvous(cache, make.body) in world.truth.closed:
        broken.append("a worker was sent to a rendezvous that is closed")
    if cache.scenario.gang and snapshot.current and any(batch.attempt < make.attempt for batch in world.batches()):
        broken.append("two attempts of a gang stand side by side")
    return broken


def succeeded_slots(cache: PlanCache, world: World) -> frozenset[int]:
    """The slots of Pods that have succeeded; of a gang, in its present attempt."""
    attempts = cache.facts(world.status).attempts
    pods = (pod for pod in world.pods() if pod.alone and pod.phase == "Succeeded" and not pod.deleting)
    return frozenset(pod.slot for pod in pods if not cache.scenario.gang or pod.attempt >= attempts[pod.slot])


def too_many(cache: PlanCache, world: World, more: int = 0) -> bool:
    """More failed attempts than backoffLimit allows (S4); without one only those of what is judged count (S14), and
    never where a Job tries again by itself, or every worker alone. `more`: restarts in place."""
    if cache.scenario.limit is not None:
        return _beyond_limit(cache, world, cache.scenario.limit, more)
    facts, limit = cache.facts(world.status), cache.policies(world.spec).get("backoffLimit")
    style = cache.scenario.styles[0]
    if style == "retrying" or (limit is None and style != "judged"):
        return False
    return facts.failures[0] > 6 if limit is None else sum(facts.failures) + more > limit


def _beyond_limit(cache: PlanCache, world: World, limit: int, more: int) -> bool:
    """A gang restarts `limit` times, and the restarts in place of one attempt are one failure; a role that restarts
    alone fails as a batch Job does."""
    failures = cache.facts(world.status).failures
    if cache.scenario.gang:
        return failures[0] + bool(more) > limit
    return max(failures) > limit or more >= max(limit, 1)
