"""Everything that happens without the operator: controllers, nodes, ends of containers, people, time.

A move is a function from a world to the (story, world) pairs that may come next. `ENDS` says how containers can end;
what must happen sooner or later (`UNASKED`) is also what `settle` uses, when nothing goes wrong any more. A move that
is bounded takes one of its own counter in `World.left`; the bounds are those of `Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from trainyard.core.policy import pause
from trainyard.testing.book import Book, Sight
from trainyard.testing.obeying import ALL, Shell, obey, restarted, written
from trainyard.testing.world import Batch, Pod, Thing, View, World

Next = Iterator[tuple[str, World]]
Move = Callable[[Book, World], Next]


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

    def start(self) -> tuple[int, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


PLACES = {one.name: place for place, one in enumerate(fields(Bounds))}
FREE = frozenset({"time", "views", "restarts"})
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


def controllers(book: Book, world: World) -> World:
    """The Job controller: every Job makes its pod, or is marked Complete or Failed; what has lost its owner goes."""
    world = _collected(world)
    for job in world.batches():
        world = _controller(world, job)
    return world


def _controller(world: World, job: Batch) -> World:
    pods = world.pods(job.uid)
    if job.phase or world.deleting:
        return world
    if any(pod.phase == "Succeeded" for pod in pods):
        return world.swap(job, job._replace(phase="Complete", ended=world.now))
    # With backoffLimit 0 (the MASTER's) the first lost pod is the last; the others make new ones without end.
    if job.slot == 0 and job.pods and not any(pod.live and not pod.deleting for pod in pods):
        if not any(pod.phase == "Failed" for pod in pods):
            world = world.fail(0, job.uid, certain=False)
        return world.swap(job, job._replace(phase="Failed", ended=world.now))
    if any(pod.live or pod.deleting for pod in pods):
        return world
    made = job._replace(pods=job.pods + 1)
    return world.with_kids(made, Pod(job.slot, job.gen, made.pods), gone=(job,))


def nodes(book: Book, world: World) -> World:
    """Nodes start what is pending and remove what is deleted."""
    for pod in world.pods():
        if pod.deleting:
            world = world.with_kids(gone=(pod,))
        elif pod.phase == "Pending":
            world = world.swap(pod, pod._replace(phase="Running"))
    return world


def _collected(world: World) -> World:
    owners = {job.uid for job in world.batches()}
    if world.deleting:
        gone = [kid for kid in world.kids if not (isinstance(kid, Thing) and kid.foreign)]
        return world.with_kids(gone=tuple(gone))
    return world.with_kids(gone=tuple(pod for pod in world.pods() if pod.owner not in owners and not pod.orphan))


UNASKED = (controllers, nodes)


def unasked(book: Book, world: World) -> Next:
    for step in UNASKED:
        if (after := step(book, world)) is not world and after != world:
            yield step.__name__, after


# --- containers end


def succeed(book: Book, world: World) -> Next:
    for pod in _running(world):
        ended = pod._replace(phase="Succeeded", code=0, reason="Completed", ended=world.now)
        after = world.swap(pod, ended)
        if pod.slot == 0:
            after = after._replace(truth=after.truth._replace(succeeded=True))
        yield f"{pod.uid} exits 0", after


ENDS = ((1, "Error"), (137, "Error"), (137, "OOMKilled"))


def fail(book: Book, world: World) -> Next:
    """A container ends in failure by its own fault. The WORKER's node restarts it in place when its pod says so."""
    for pod in _running(world):
        for code, reason in ENDS if pod.slot == 0 else ((137, "Error"),):
            if after := spend(world, "exits"):
                yield f"{pod.uid} exits {code} {reason}", _failed(book, after, pod, code, reason)


def _failed(book: Book, world: World, pod: Pod, code: int, reason: str) -> World:
    ended = pod._replace(phase="Failed", code=code, reason=reason, ended=world.now)
    if pod.slot and _restarts_in_place(book, world, pod.slot):
        truth = world.truth._replace(in_place=world.truth.in_place + 1)
        return world.swap(pod, pod._replace(restarts=pod.restarts + 1))._replace(truth=truth)
    world = world.swap(pod, ended)
    job = next(one for one in world.batches() if one.uid == pod.owner)
    facts = book.facts(world.status)
    stale = job.attempt < facts.attempts[job.slot]
    if pod.slot:
        return world.fail(pod.slot, pod.uid, certain=not stale)
    if code == 1 or reason == "OOMKilled":
        world = world._replace(truth=world.truth._replace(permanent=True))
    world = world.fail(0, job.uid, certain=not stale)
    if stale or facts.suspended:
        return world  # a resume starts anew, without a back-off
    count = sum(slot == 0 for slot, _ in world.truth.must)
    return world._replace(truth=world.truth._replace(wait=world.now + int(pause(count))))


def _restarts_in_place(book: Book, world: World, slot: int) -> bool:
    items = book.value(world.spec)["replicaSpecs"]
    template = items[slot].get("template") or {}
    return bool(template.get("spec", {}).get("restartPolicy") != "Never")


def drain(book: Book, world: World) -> Next:
    """The machine's affairs: the pod gets DisruptionTarget and its container the code of a program that gives up."""
    for pod in _running(world):
        if after := spend(world, "drains"):
            ended = pod._replace(phase="Failed", code=1, reason="Error", disrupted=True, ended=world.now)
            yield f"{pod.uid} is drained", after.swap(pod, ended)


def _running(world: World) -> list[Pod]:
    owners = {job.uid for job in world.batches() if not job.phase}
    return [pod for pod in world.pods() if pod.phase == "Running" and not pod.deleting and pod.owner in owners]


# --- people


def delete_pod(book: Book, world: World) -> Next:
    for pod in world.pods():
        if pod.slot < 2 and not pod.deleting and not pod.orphan and (after := spend(world, "pods_deleted")):
            after = after.doubt(pod.slot, pod.uid).doubt(pod.slot, pod.owner)
            if pod.slot == 0 and pod.phase != "Succeeded":
                after = after.fail(0, pod.owner, certain=False)  # a failed Job without a pod counts (S14)
            yield f"somebody deletes pod {pod.uid}", _forget(after).swap(pod, pod._replace(deleting=True))


def delete_job(book: Book, world: World) -> Next:
    for job in world.batches():
        if job.slot < 2 and (after := spend(world, "jobs_deleted")):
            after = after.doubt(job.slot, job.uid)
            for pod in world.pods(job.uid):
                after = after.doubt(pod.slot, pod.uid)
            yield f"somebody deletes Job {job.uid}", _forget(after).with_kids(gone=(job,))


def _forget(world: World) -> World:
    """Who takes evidence away takes the back-off along."""
    return world._replace(truth=world.truth._replace(wait=0))


def suspend(book: Book, world: World) -> Next:
    spec = book.value(world.spec)
    if spec.get("suspend") is True:
        yield "resume", _edited(_forget(world), book.number({**spec, "suspend": False}))
    elif after := spend(world, "suspends"):
        yield "suspend", _edited(_forget(after), book.number({**spec, "suspend": True}))


def edit(book: Book, world: World) -> Next:
    """Somebody gives the WORKER another port."""
    if (after := spend(world, "edits")) and "RuntimeId" in (spec := book.value(world.spec)):
        items = [{**one, "tfPort": 3333} if one["tfReplicaType"] == "WORKER" else one for one in spec["replicaSpecs"]]
        yield "somebody edits the WORKER", _edited(after, book.number({**spec, "replicaSpecs": items}))


def edit_early(book: Book, world: World) -> Next:
    """The same before the defaults are stored."""
    if (after := spend(world, "edits")) and "RuntimeId" not in (spec := book.value(world.spec)):
        items = [{**one, "tfPort": 3333} if one["tfReplicaType"] == "WORKER" else one for one in spec["replicaSpecs"]]
        yield "somebody edits the WORKER early", _edited(after, book.number({**spec, "replicaSpecs": items}))


def delete(book: Book, world: World) -> Next:
    if after := spend(world, "deletion"):
        yield "the job is deleted", _edited(after, world.spec)._replace(deleting=True)


def _edited(world: World, spec: int) -> World:
    return written(world._replace(spec=spec))


# --- time, views, the operator


def pass_time(book: Book, world: World) -> Next:
    """Nothing happens until the time at which the plan wants to look again."""
    after = book.act(world, Sight.of(world)).after
    if after is not None and after > world.now and (later := spend(world, "time")):
        yield "time passes", later._replace(now=-int(-after // 1))


def remember(book: Book, world: World) -> Next:
    """The operator's view stays behind from here on; or what a restarted operator is shown first is as old as this."""
    if world.view is None and (after := spend(world, "views")):
        view = View(world.spec, world.status, world.deleting, world.kids)
        yield "a view is remembered", after._replace(view=view)
        yield "a view is kept for after a restart", after._replace(view=view._replace(waits=False))


def restart(book: Book, world: World) -> Next:
    if (after := spend(world, "restarts")) and restarted(after) != after:
        yield "the operator is restarted", restarted(after)


MOVES: dict[str, Move] = {
    "unasked": unasked,
    "succeed": succeed,
    "fail": fail,
    "drain": drain,
    "delete pod": delete_pod,
    "delete job": delete_job,
    "suspend": suspend,
    "edit": edit,
    "edit early": edit_early,
    "delete": delete,
    "time": pass_time,
    "remember": remember,
    "restart": restart,
}

PASSES = ("pass", "stale pass", "mixed pass", "dying pass")


def sights(world: World, names: frozenset[str]) -> Iterator[tuple[str, Sight]]:
    """What a pass may look at."""
    if "pass" in names:
        yield "pass", Sight.of(world)
    view = world.view
    if view is None:
        return
    if "stale pass" in names and not view.fresh and view.status >= 0:
        yield "pass on the old view", Sight.old(view)
    if "mixed pass" in names and view.kids != world.kids and (view.waits or view.restarted):
        yield "pass on a fresh job and old children", Sight.mixed(world, view)


def settled_step(book: Book, world: World, shell: Shell) -> tuple[World, list[str]]:
    """One round in which nothing goes wrong: a pass on what is, and everybody else does their part."""
    done = obey(book, world, Sight.of(world), ALL, shell)
    world = done.world
    for step in UNASKED:
        world = step(book, world)
    return world, done.broken
