"""The shell on a small world: the order of writes of `control.reconcile`, and what each write must never do.

A pass is carried out whole, or the operator dies after its k-th write. A spec patch goes alone; else the status goes
first (the fence: always sent when anything is to be written, refused when the job was written since), then deletes by
uid, then creates. `Shell` holds the switches that the planted bugs turn.

Own writes: after a pass the real shell waits until its own child writes have arrived in its stores. A store holds one
resource, and one that has our write has everything of that resource before it. So a remembered view of the children is
brought up to our own write, resource by resource (`_arrived`); what others did later, and other resources, stay stale.
Only an operator that was restarted since may look at the view as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.objects import Json
from trainyard.testing.book import Act, Book, Drop, Facts, Make, Sight, foreign_name, holds, merged
from trainyard.testing.world import Batch, Kid, Pod, Thing, World, ordered

ALL = 99


class Shell(NamedTuple):
    """The shell's habits; the defaults are the real ones."""

    fence: str = "always"  # always, on change, never
    by_uid: bool = True
    keeps: bool = True  # AlreadyExists is not overwritten
    background: bool = True  # deletes take the pods along
    versioned: bool = True  # the spec patch names the resourceVersion
    waits: bool = True  # for its own child writes to arrive


class Outcome(NamedTuple):
    world: World
    broken: list[str]
    writes: int  # how many were sent
    wanted: int  # how many the plan had


def obey(book: Book, world: World, sight: Sight, limit: int, shell: Shell) -> Outcome:
    """One pass."""
    act = book.act(world, sight)
    if act.idle:
        return Outcome(world, [], 0, 0)
    if act.spec_patch:
        return _patch_spec(book, world, sight, act, shell)
    wanted = 1 + len(act.deletes) + len(act.creates)
    changes = act.status != sight.status
    if not sight.fresh and (shell.fence == "always" or (shell.fence == "on change" and changes)):
        return Outcome(world, [], 0, wanted)
    broken: list[str] = []
    before = world
    if changes:
        world = written(world._replace(status=act.status))
    left = limit - 1
    for drop in act.deletes[:left]:
        world = _delete(book, world, sight, drop, shell, broken)
    left = max(0, left - len(act.deletes))
    for make in act.creates[:left]:
        world = _create(book, world, sight, make, shell, broken)
    sent = min(limit, wanted)
    world = restarted(world) if sent < wanted else _arrived(before, world, act, shell)
    return Outcome(world, broken, sent, wanted)


def restarted(world: World) -> World:
    """The operator is killed and starts again: it forgets refusals, and which writes were its own."""
    view = world.view
    if view is not None:
        view = None if view.waits else view._replace(restarted=True)
    return world._replace(view=view, refused=())


def _patch_spec(book: Book, world: World, sight: Sight, act: Act, shell: Shell) -> Outcome:
    if not sight.fresh and shell.versioned:
        return Outcome(world, [], 0, 1)
    stored = book.value(world.spec)
    spec = merged(stored, act.spec_patch or {})
    broken = [] if holds(spec, stored) else ["the spec patch took back what the user wrote"]
    return Outcome(written(world._replace(spec=book.number(spec))), broken, 1, 1)


def written(world: World) -> World:
    """Whoever wrote the job: what is remembered of it is old now."""
    view = world.view
    return world if view is None else world._replace(view=view._replace(fresh=False))


def _arrived(before: World, world: World, act: Act, shell: Shell) -> World:
    """Our own writes are awaited: the remembered children are as new as these, for the resources written."""
    view = world.view
    if view is None or not (view.waits and shell.waits) or before.kids == world.kids:
        return world
    touched = {one.kind for one in act.deletes} | {one.kind for one in act.creates}
    kept = [kid for kid in view.kids if _resource(kid) not in touched]
    new = [kid for kid in world.kids if _resource(kid) in touched]
    return world._replace(view=view._replace(kids=ordered([*kept, *new])))


def _resource(kid: Kid) -> str:
    return kid.kind if isinstance(kid, Thing) else "Job" if isinstance(kid, Batch) else "Pod"


def _delete(book: Book, world: World, sight: Sight, drop: Drop, shell: Shell, broken: list[str]) -> World:
    if drop.kind == "TfJob":
        return _expire(book, world, broken)
    live = _named(world, drop.kind, drop.name)
    if live is None or (shell.by_uid and live.uid != drop.uid):
        return world
    if isinstance(live, Thing):
        if live.foreign:
            broken.append("something that is not ours was deleted")
        return world.with_kids(gone=(live,))
    broken += _why_not_deleted(book, world, sight, live)
    for pod in world.pods(live.uid):
        if pod.phase == "Failed" and pod not in sight.kids:  # it failed after we had looked
            world = world.doubt(live.slot, live.uid).doubt(live.slot, pod.uid)
    if live.phase == "Failed" and live not in sight.kids:
        world = world.doubt(live.slot, live.uid)
    world = world.with_kids(gone=(live,))
    if not shell.background:
        pods = world.pods(live.uid)
        world = world.with_kids(*(pod._replace(orphan=True) for pod in pods), gone=tuple(pods))
    return world


def _why_not_deleted(book: Book, world: World, sight: Sight, live: Batch) -> list[str]:
    facts, suspend = book.facts(world.status), book.value(world.spec).get("suspend") is True
    if facts.end or world.deleting:
        return []
    ends: list[Kid] = [live] if live.phase == "Complete" else []
    ends += [pod for pod in world.pods(live.uid) if pod.phase == "Succeeded"]
    if any(end in sight.kids for end in ends):
        return ["a replica that ended well was deleted while the job goes on"]
    current = live.attempt >= facts.attempts[live.slot]
    if current and not suspend and any(pod.live and not pod.deleting for pod in world.pods(live.uid)):
        return ["a running child of the current attempt was deleted"]
    return []


def _expire(book: Book, world: World, broken: list[str]) -> World:
    facts, ttl = book.facts(world.status), book.value(world.spec).get("ttlSecondsAfterFinished")
    if not facts.end or ttl is None or facts.completion is None or world.now < facts.completion + ttl:
        broken.append("the job was deleted before its time to live was over")
    return written(world._replace(deleting=True))


def _create(book: Book, world: World, sight: Sight, make: Make, shell: Shell, broken: list[str]) -> World:
    broken += _why_not_made(book, world, make)
    there = _named(world, make.kind, make.name)
    if foreign_name(world, make.kind, make.name):
        if not shell.keeps:
            broken.append("something that is not ours was overwritten")
            return world
        tries = next((old[2] for old in world.refused if old[:2] == (make.kind, make.name)), 0)
        others = [old for old in world.refused if old[:2] != (make.kind, make.name)]
        return world._replace(refused=tuple(sorted([*others, (make.kind, make.name, tries + 1, world.now)])))
    if there is not None:
        if shell.keeps:
            again = sight.current or not (world.view and world.view.restarted)
            broken += ["a child that the operator itself had made was made again"] if again else []
            return world
        broken.append("a live child was overwritten")
        world = world.with_kids(gone=(there,))
    if make.slot == 0 and world.now < world.truth.wait:
        broken.append("the MASTER was tried again before its back-off was over")
    if make.slot >= 0 and too_many(book.facts(world.status), book.value(world.spec)):
        broken.append("a replica was made again beyond backoffLimit")
    return _made(world, make)


def _made(world: World, make: Make) -> World:
    place = make.slot if make.slot >= 0 else 3
    gens = list(world.gens)
    gens[place] += 1
    world = world._replace(gens=tuple(gens))
    if make.slot < 0:
        return world.with_kids(Thing(make.kind, make.name, gens[place]))
    return world.with_kids(Batch(make.slot, gens[place], make.attempt))


def _why_not_made(book: Book, world: World, make: Make) -> list[str]:
    broken = []
    if book.facts(world.status).end:
        broken.append("a child was made after the end")
    if book.value(world.spec).get("suspend") is True and make.slot >= 0:
        broken.append("a replica was made while suspended")
    if world.deleting:
        broken.append("a child was made for a job that is being deleted")
    return broken


def too_many(facts: Facts, spec: Json, more: int = 0) -> bool:
    """More failed attempts than backoffLimit allows (S4); without one only the MASTER's count (S14)."""
    limit = spec.get("backoffLimit")
    return facts.failures[0] > 6 if limit is None else sum(facts.failures) + more > limit


def _named(world: World, kind: str, name: str) -> Batch | Thing | None:
    for kid in world.kids:
        if not isinstance(kid, Pod) and kid.name == name and _resource(kid) == kind:
            return kid
    return None
