"""Everything that happens without the operator: controllers, nodes, ends of containers, people, time.

A transition is a function from a world to the (story, world) pairs that may come next. `ENDS` says how containers can
end; what must happen sooner or later (`UNASKED`) is also what `settle` uses, when nothing goes wrong any more. A
transition that is bounded takes one of its own counter in `World.left`; the bounds are those of `Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from tests.model.executor_model import (
    ALL,
    LONGEST_PAUSE,
    PAUSE,
    ExecutorModel,
    apply_plan,
    pause_after,
    restarted,
    written,
)
from tests.model.plan_cache import PlanCache, Snapshot
from tests.model.world import JOB_UID, UNKNOWN, Batch, OtherChild, Pod, Set, View, World

Next = Iterator[tuple[str, World]]
Transition = Callable[[PlanCache, World], Next]


@dataclass(frozen=True)
class Bounds:
    """How often each kind of trouble may happen in one history, and how many of them together."""

    trouble: int = 2
    exits: int = 2  # containers that end in failure
    drains: int = 1
    pods_deleted: int = 1
    jobs_deleted: int = 1
    suspends: int = 1
    edits: int = 1
    deletion: int = 1
    time: int = 2
    views: int = 1
    restarts: int = 1
    trainings: int = 1
    stalls: int = 1
    errors: int = 1  # passes that end with 503

    def start(self) -> tuple[int, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


PLACES = {bound.name: place for place, bound in enumerate(fields(Bounds))}
FREE = frozenset({"time", "views", "restarts", "trainings", "errors"})
"""Moves that have a bound of their own but are no trouble."""


def spend(world: World, *names: str) -> World | None:
    """The world with one less of each of these left; None when one is used up."""
    left = list(world.left)
    for name in [*names, *([] if FREE.issuperset(names) else ["trouble"])]:
        left[PLACES[name]] -= 1
    if min(left) < 0:
        return None
    if not left[PLACES["trouble"]]:  # which trouble it was does not matter any more
        left = [count if name in FREE else 0 for name, count in zip(PLACES, left, strict=True)]
    return world._replace(left=tuple(left))


# --- what happens sooner or later


def controllers(cache: PlanCache, world: World) -> World:
    """Every Job makes its pod, or is marked Complete or Failed; every StatefulSet has as many pods as it should have;
    what has lost its owner goes."""
    world = _collected(world)
    if world.deleting:
        return world
    for job in world.batches():
        world = world if job.deleting else _controller(cache, world, job)
    for worker_set in world.sets():
        world = world if worker_set.deleting else _set_controller(world, worker_set)
    return world


def _controller(cache: PlanCache, world: World, job: Batch) -> World:
    pods, style = world.pods(job.uid), cache.scenario.styles[job.slot]
    if job.phase:
        return world
    if any(pod.phase == "Succeeded" for pod in pods):
        return world.swap(job, job._replace(phase="Complete", ended=world.now))
    if job.pods > _limit(cache, world, style) and not any(pod.live and not pod.deleting for pod in pods):
        if style == "retrying":
            world = world._replace(truth=world.truth._replace(permanent=True))
        elif not any(pod.phase == "Failed" for pod in pods):
            world = world.fail(cache.failure(job.slot, job.uid, job.attempt), certain=False)
        return world.swap(job, job._replace(phase="Failed", ended=world.now))
    if any(pod.live or pod.deleting for pod in pods):
        return world
    counted = job._replace(pods=job.pods + 1)
    return world.with_children(counted, Pod(job.slot, job.gen, counted.pods, attempt=job.attempt), gone=(job,))


def _limit(cache: PlanCache, world: World, style: str) -> int:
    """How many pods of a Job may be lost; of what is judged none."""
    own = int(cache.policies(world.spec).get("backoffLimit", 6))
    return {"judged": 0, "retrying": own}.get(style, ALL)


def _set_controller(world: World, workers: Set) -> World:
    pods = world.pods(workers.uid)
    for pod in pods:
        if pod.number >= workers.replicas and not pod.deleting:
            world = world.swap(pod, pod._replace(deleting=True))
    there = {pod.number for pod in pods}
    new_pods = (
        Pod(workers.slot, workers.gen, n, attempt=workers.attempt) for n in range(workers.replicas) if n not in there
    )
    return world.with_children(*new_pods)


def nodes(cache: PlanCache, world: World) -> World:
    """Nodes start what is pending and remove what is deleted."""
    for pod in world.pods():
        if pod.deleting:
            world = world.with_children(gone=(pod,))
        elif pod.phase == "Pending":
            began = world.now if pod.alone or cache.scenario.styles[pod.slot] == "judged" else pod.began
            world = world.swap(pod, pod._replace(phase="Running", began=began))
    return world


def _collected(world: World) -> World:
    if world.deleting:
        gone = [obj for obj in world.children if not (isinstance(obj, OtherChild) and obj.foreign)]
        return world.with_children(gone=tuple(gone))
    owners = {workload.uid for workload in world.workloads() if not workload.deleting} | {JOB_UID}
    lost = [pod for pod in world.pods() if pod.owner not in owners and not pod.orphan]
    stopped = (pod._replace(deleting=True) for pod in lost if pod.live)  # their nodes take them away
    world = world.with_children(*stopped, gone=tuple(lost))
    return world.with_children(
        gone=tuple(workload for workload in world.workloads() if workload.deleting and not world.pods(workload.uid))
    )


UNASKED = (controllers, nodes)


def unasked(cache: PlanCache, world: World) -> Next:
    for step in UNASKED:
        if (after := step(cache, world)) is not world and after != world:
            yield step.__name__, after


# --- containers end


def succeed(cache: PlanCache, world: World) -> Next:
    for pod in _running(cache, world):
        ended = pod._replace(phase="Succeeded", code=0, reason="Completed", ended=world.now)
        after = world.swap(pod, ended)
        if pod.slot in cache.scenario.deciding and not (cache.scenario.gang and _is_stale(cache, world, pod)):
            done = tuple(sorted({*after.truth.done, pod.slot}))
            after = after._replace(truth=after.truth._replace(done=done))
        yield f"{pod.uid} exits 0", after.unmet()


def fail(cache: PlanCache, world: World) -> Next:
    """A container ends in failure by its own fault. The WORKER's node restarts it in place when its pod says so."""
    for pod in _running(cache, world):
        judged = cache.scenario.styles[pod.slot] in ("judged", "alone")
        for code, reason in cache.scenario.ends if judged else ((137, "Error"),):
            if after := spend(world, "exits"):
                yield f"{pod.uid} exits {code} {reason}", _failed(cache, _restarts(cache, after), pod, code, reason)


def _restarts(cache: PlanCache, world: World) -> World:
    return world._replace(truth=world.truth._replace(lost=True)) if cache.scenario.gang else world


def _failed(cache: PlanCache, world: World, pod: Pod, code: int, reason: str) -> World:
    style = cache.scenario.styles[pod.slot]
    if style in ("endless", "alone") and cache.scenario.in_place(cache.value(world.spec), pod.slot):
        if cache.scenario.limit is not None and cache.scenario.gang:  # the role has failed
            world = world.fail(cache.failure(pod.slot, pod.uid, pod.attempt), certain=False)
            world = _uncertain(cache, world, pod.slot)
        is_replaced = cache.scenario.restart_limit is not None and _is_stale(cache, world, pod)
        truth = world.truth._replace(in_place=world.truth.in_place + (not is_replaced))
        return world.swap(pod, pod._replace(restarts=pod.restarts + 1))._replace(truth=truth)
    world = world.swap(pod, pod._replace(phase="Failed", code=code, reason=reason, ended=world.now, stalled=False))
    attempt, stale = pod.attempt, _is_stale(cache, world, pod)
    if style in ("endless", "retrying"):
        return world.fail(cache.failure(pod.slot, pod.uid, attempt), certain=not stale)
    if pod.slot not in cache.wants(world.spec) or pod.slot in cache.scenario.ignored:
        return world
    if cache.scenario.permanent(code, reason) and not (cache.scenario.gang and stale):
        world = world._replace(truth=world.truth._replace(permanent=True))
    failure = cache.failure(pod.slot, pod.uid if style == "alone" else pod.owner, attempt)
    known = failure in world.truth.must or (
        cache.scenario.gang and failure in world.truth.may
    )  # then it waits for that one
    world = world.fail(failure, certain=not stale)
    if stale or cache.facts(world.status).suspended:
        return world  # a resume starts anew, without a back-off
    return _attempt_ended(cache, world, pod, waits=not known)


def _attempt_ended(cache: PlanCache, world: World, pod: Pod, waits: bool) -> World:
    """An attempt of the current number has failed, or was disrupted. `waits`: it says when the next one begins. Counted
    here, and not taken from the status: how many in a row have made no progress."""
    truth, scenario = world.truth, cache.scenario
    counts, row = scenario.counts(pod.slot), truth.row(scenario.counts(pod.slot))
    is_alone = scenario.styles[pod.slot] == "alone" and not scenario.gang
    seconds, pause = world.now - pod.began, pause_after(row + 1)
    has_progress = seconds > max(PAUSE, 0 if is_alone else LONGEST_PAUSE if row == UNKNOWN else pause)
    after = 0 if has_progress else UNKNOWN if row == UNKNOWN else row + 1
    if is_alone:
        after = UNKNOWN if row == UNKNOWN or _others_ended(world, pod) else after
        return world._replace(truth=truth.with_row(counts, after, len(scenario.roles)))
    if pod.slot and not scenario.gang:
        return world
    due = world.now + pause if after and after != UNKNOWN else 0 if after else world.now
    after = after if truth.next_row in (None, after) else UNKNOWN  # which of them counts last is not known
    return world._replace(truth=truth._replace(next_row=after, wait=due if waits else truth.wait))


def _others_ended(world: World, pod: Pod) -> bool:
    return any(other.alone and other.phase == "Failed" and other.uid != pod.uid for other in world.pods())


def _is_stale(cache: PlanCache, world: World, pod: Pod) -> bool:
    return pod.attempt < cache.facts(world.status).attempts[pod.slot]


def drain(cache: PlanCache, world: World) -> Next:
    """The machine's affairs: the pod gets DisruptionTarget and its container the code of a program that gives up."""
    for pod in _running(cache, world):
        for reason, cause in cache.scenario.disruptions.items():
            if after := spend(world, "drains"):
                ended = pod._replace(
                    phase="Failed", code=1, reason="Error", disrupted=True, disruption=reason, ended=world.now
                )
                after = _disrupted(cache, after, pod, cause).swap(pod, ended._replace(stalled=False))
                yield f"{pod.uid} is drained {reason}".rstrip(), after


def _disrupted(cache: PlanCache, world: World, pod: Pod, cause: str) -> World:
    world = _lost(cache, world, cause)
    judged = cache.scenario.styles[pod.slot] in ("judged", "alone")
    if not judged or _is_stale(cache, world, pod) or cache.facts(world.status).suspended:
        return world
    has_failed = cache.scenario.gang and cache.failure(pod.slot, "", pod.attempt) in (
        *world.truth.must,
        *world.truth.may,
    )
    return _attempt_ended(cache, world, pod, waits=not has_failed and world.truth.next_row is None)


def stall(cache: PlanCache, world: World) -> Next:
    """No replica makes steps any more, and the nodes say so."""
    facts, wants = cache.facts(world.status), cache.wants(world.spec)
    pods = [pod for pod in _running(cache, world) if pod.slot in wants and not _is_stale(cache, world, pod)]
    runs = {pod.slot for pod in pods} == wants and not facts.suspended
    if runs and (after := spend(world, "stalls")):
        stalled = (pod._replace(stalled=True) for pod in pods)
        yield "all replicas stall", _lost(cache, after, "stall").with_children(*stalled, gone=tuple(pods))


def train(cache: PlanCache, world: World) -> Next:
    """What runs goes on for longer than any back-off."""
    if _running(cache, world) and (after := spend(world, "trainings")):
        yield "training goes on", after._replace(now=world.now + LONGEST_PAUSE + 1)


def _running(cache: PlanCache, world: World) -> list[Pod]:
    """What may end. The pods of a StatefulSet are started again by their nodes for ever."""
    owners = {job.uid for job in world.batches() if not (job.phase or job.deleting)} | {JOB_UID}
    return [pod for pod in world.pods() if pod.phase == "Running" and not pod.deleting and pod.owner in owners]


# --- people


def delete_pod(cache: PlanCache, world: World) -> Next:
    for pod in world.pods():
        touched = pod.slot < cache.scenario.touched and not pod.deleting and not pod.orphan
        if touched and (after := spend(world, "pods_deleted")):
            for uid in (pod.uid, pod.owner):
                after = after.doubt(cache.failure(pod.slot, uid, pod.attempt))
            if (
                cache.scenario.styles[pod.slot] == "judged" and pod.phase != "Succeeded"
            ):  # without a pod it counts (S14)
                after = after.fail(cache.failure(pod.slot, pod.owner, pod.attempt), certain=False)
            after = after if cache.scenario.gang and pod.phase != "Failed" else _forget(after)
            after = _uncertain(cache, after, pod.slot)
            yield f"somebody deletes pod {pod.uid}", _lost(cache, after).swap(pod, pod._replace(deleting=True))


def vanish(cache: PlanCache, world: World) -> Next:
    """A Pod or a batch Job is deleted by force with its pods: they are gone before any pass."""
    for child in world.holders():
        after = None if isinstance(child, Set) else spend(world, "pods_deleted")
        if after and child.slot < cache.scenario.touched:
            pods = [child] if isinstance(child, Pod) else world.pods(child.uid)
            for uid in (child.uid, *(pod.uid for pod in pods)):
                after = after.doubt(cache.failure(child.slot, uid, child.attempt))
            failed = not cache.scenario.gang or any(pod.phase == "Failed" for pod in pods)
            after = _uncertain(cache, _lost(cache, _forget(after) if failed else after), child.slot)
            yield f"{child.uid} is gone", after.with_children(gone=(child, *pods))


def _lost(cache: PlanCache, world: World, cause: str = "eviction") -> World:
    """`cause`: what a restart after that counts as, unless a replica has failed."""
    truth = world.truth
    causes = tuple(sorted([*truth.causes, cause]))
    return world._replace(truth=truth._replace(lost=truth.lost or cache.scenario.gang, causes=causes))


def _uncertain(cache: PlanCache, world: World, slot: int) -> World:
    """Another client has ended a replica: how long its attempt ran may never be known."""
    scenario, truth = cache.scenario, world.truth
    if scenario.styles[slot] not in ("judged", "alone"):
        return world
    truth = truth.with_row(scenario.counts(slot), UNKNOWN, len(scenario.roles))
    return world._replace(truth=truth._replace(next_row=None if truth.next_row is None else UNKNOWN))


def delete_job(cache: PlanCache, world: World) -> Next:
    """A batch Job or a StatefulSet is deleted with its pods."""
    for workload in world.workloads():
        if workload.slot < cache.scenario.touched and (after := spend(world, "jobs_deleted")):
            pods = world.pods(workload.uid)
            for uid in (workload.uid, *(pod.uid for pod in pods)):
                after = after.doubt(cache.failure(workload.slot, uid, workload.attempt))
            lost = not cache.scenario.gang or any(pod.phase == "Failed" for pod in pods)
            after = _uncertain(cache, _lost(cache, _forget(after) if lost else after), workload.slot)
            yield f"somebody deletes {workload.uid}", _without(after, workload)


def _without(world: World, child: Batch | Set) -> World:
    pods = world.pods(child.uid)
    return world.with_children(*(pod._replace(ownerless=True) for pod in pods), gone=(child, *pods))


def meddle(cache: PlanCache, world: World) -> Next:
    """Another client deletes an auxiliary object, or scales a StatefulSet."""
    after = spend(world, "jobs_deleted")
    if after is None:
        return
    for other_child in world.other_children():
        if not other_child.foreign:
            yield (
                f"somebody deletes the {other_child.kind} {other_child.name}",
                after.with_children(gone=(other_child,)),
            )
    for workers in world.sets():
        yield f"somebody scales {workers.uid} to 3", after.swap(workers, workers._replace(replicas=3))


def _forget(world: World) -> World:
    """Deleting a failed pod also removes the time that its back-off counts from."""
    return world._replace(truth=world.truth._replace(wait=0))


def suspend(cache: PlanCache, world: World) -> Next:
    spec, scenario = cache.value(world.spec), cache.scenario
    if scenario.is_suspended(spec):
        yield "resume", _edited(_forget(world), cache.number(scenario.with_suspend(spec, False)))
    elif after := spend(world, "suspends"):
        yield "suspend", _edited(_forget(after), cache.number(scenario.with_suspend(spec, True)))


def edit(cache: PlanCache, world: World) -> Next:
    """A user edits the spec."""
    yield from _edits(cache, world, early=False)


def edit_early(cache: PlanCache, world: World) -> Next:
    """The same before the defaults are stored."""
    yield from _edits(cache, world, early=True)


def _edits(cache: PlanCache, world: World, early: bool) -> Next:
    after = spend(world, "edits")
    if after is None or cache.ready(world.spec) is early:
        return
    spec = cache.value(world.spec)
    for edit in cache.scenario.edits:
        if edit.early is early and (changed := edit.change(spec)) and changed != spec:
            yield f"somebody {edit.description}", _rescaled(cache, world, _edited(after, cache.number(changed)))


def _rescaled(cache: PlanCache, before: World, after: World) -> World:
    """What has failed of replicas that the spec has no more is not counted; of those that it has again, it may be."""
    old, new = cache.wants(before.spec), cache.wants(after.spec)
    after = after if old == new else after.unmet()
    if old - new:  # it may be wanted again while its Pod is in Terminating, and what has failed of it is not waited for
        after = _forget(_uncertain(cache, _lost(cache, after), min(old - new)))
    for pod in after.pods() if old != new else ():
        if pod.alone and pod.phase == "Failed" and not pod.disrupted:
            failure = cache.failure(pod.slot, pod.uid, pod.attempt)
            if pod.slot in new - old:
                after = after.fail(failure, certain=False)
                lasting = after.truth.permanent or cache.scenario.permanent(pod.code, pod.reason)
                after = after._replace(truth=after.truth._replace(permanent=lasting))
            elif pod.slot in old - new:
                after = after.doubt(failure)
    return after


def delete(cache: PlanCache, world: World) -> Next:
    if after := spend(world, "deletion"):
        yield "the job is deleted", _edited(after, world.spec)._replace(deleting=True)


def _edited(world: World, spec: int) -> World:
    return written(world._replace(spec=spec))


# --- time, views, the operator


def pass_time(cache: PlanCache, world: World) -> Next:
    """Nothing happens until the time at which the plan wants to look again."""
    after = cache.planned_writes(world, Snapshot.of(world)).after
    if after is not None and after > world.now and (later := spend(world, "time")):
        yield "time passes", later._replace(now=-int(-after // 1))


def remember(cache: PlanCache, world: World) -> Next:
    """The operator's view stays behind from here on; or what a restarted operator is shown first is as old as this."""
    if world.view is None and (after := spend(world, "views")):
        view = View(world.spec, world.status, world.deleting, world.children)
        yield "a view is remembered", after._replace(view=view)
        yield "a view is kept for after a restart", after._replace(view=view._replace(waits=False))


def restart(cache: PlanCache, world: World) -> Next:
    if (after := spend(world, "restarts")) and restarted(after) != after:
        yield "the operator is restarted", restarted(after)


TRANSITIONS: dict[str, Transition] = {
    "unasked": unasked,
    "succeed": succeed,
    "fail": fail,
    "drain": drain,
    "stall": stall,
    "train": train,
    "delete pod": delete_pod,
    "delete job": delete_job,
    "vanish": vanish,
    "meddle": meddle,
    "suspend": suspend,
    "edit": edit,
    "edit early": edit_early,
    "delete": delete,
    "time": pass_time,
    "remember": remember,
    "restart": restart,
}

PASSES = ("pass", "stale pass", "mixed pass", "dying pass", "failing pass")


def snapshots(world: World, names: frozenset[str]) -> Iterator[tuple[str, Snapshot]]:
    """What a pass may look at."""
    if "pass" in names:
        yield "pass", Snapshot.of(world)
    view = world.view
    if view is None:
        return
    if "stale pass" in names and not view.fresh and view.status >= 0:
        yield "pass on the old view", Snapshot.old(view)
    if "mixed pass" in names and view.children != world.children and (view.waits or view.restarted):
        yield "pass on a fresh job and old children", Snapshot.mixed(world, view)


def settled_step(cache: PlanCache, world: World, executor: ExecutorModel) -> tuple[World, list[str]]:
    """One round in which nothing goes wrong: a pass on what is, and everybody else does their part."""
    done = apply_plan(cache, world, Snapshot.of(world), ALL, executor)
    world = done.world
    for step in UNASKED:
        world = step(cache, world)
    return world, done.broken
