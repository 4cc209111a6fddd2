"""Every world that a small job can reach, visited breadth first; the shortest story that breaks a rule is told.

The decision is the real one (`core.decide`); the shell's order is modelled in `obeying`, all else in `moves`.

Moves: a pass, whole or dying after its 1st, 2nd, 3rd write; a pass on a remembered old view; a pass on a fresh job and
old children; the operator's restart; Job and StatefulSet controllers, node, garbage collector; containers ending with
0, 1, 137, OOMKilled or drained; a pod, a child Job, a StatefulSet or an extra deleted by a person; suspend, resume,
edit, scale, delete; time passing to the plan's `after`. `Bounds` says how often each may happen in one history, and the
scene's `Cast` which kind of job it is.

Old children, exactly: the real shell waits until its own child writes have arrived in its stores, so old children
always contain them, unless the operator was restarted. What others did may be missing from any resource (`obeying`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.executor_model import ALL, Shell, obey
from tests.model.plan_cache import Book, Sight
from tests.model.rules import after_step, at_rest
from tests.model.scenarios import Cast, tf
from tests.model.transitions import MOVES, PASSES, Bounds, settled_step, sights
from tests.model.world import LETTERS, Kid, Thing, World
from trainyard.objects import Json

ROUNDS = 40
REAL = Shell()
DEATHS = 3  # after so many writes the operator may die; what comes later dies alike
LOOKS = 3  # a name that somebody else holds is tried again for ever; after so many times we have seen enough
EVERY = frozenset([*MOVES, *PASSES])


class RuleBroken(Exception):
    """A rule does not hold."""

    def __init__(self, rule: str, story: list[str]) -> None:
        super().__init__(rule, story)  # its arguments, so that it comes whole out of another process
        self.rule, self.story = rule, story

    def __str__(self) -> str:
        return "\n  ".join([self.rule, *self.story])


@dataclass(frozen=True)
class Scene:
    """Where the exploration starts: a job that nobody has seen yet."""

    policies: Json = field(default_factory=dict)
    cast: Cast = field(default_factory=tf)
    foreign: str = ""  # an object of that name exists and is not ours
    foreign_kind: str = "Job"
    bounds: Bounds = field(default_factory=Bounds)

    def world(self, book: Book) -> World:
        kids: tuple[Kid, ...] = (Thing(self.foreign_kind, self.foreign, 0, True),) if self.foreign else ()
        spec = book.number({**self.cast.spec, **self.policies})
        gens = (0,) * (len(self.cast.slots) + 1)
        return World(spec, book.number({}), kids, gens, left=self.bounds.start())


@dataclass
class Found:
    """What an exploration came to."""

    worlds: int
    plans: int


def explore(scene: Scene, shell: Shell = REAL, moves: frozenset[str] = EVERY) -> Found:
    """Visit every world. Raises RuleBroken."""
    book = Book(scene.cast)
    first = scene.world(book)
    came: dict[World, tuple[World | None, str]] = {first: (None, "")}
    rested: set[World] = set()
    todo = deque([first])
    try:
        while todo:
            world = todo.popleft()
            if rule := _settles(book, world, shell, rested):
                raise _Stop(rule, world, "from here on nothing goes wrong")
            for told, after in _next(book, world, shell, moves):
                after = _needed(after, shell)
                if after not in came:
                    if rule := after_step(book, world, after):
                        raise _Stop(rule, world, told)
                    came[after] = (world, told)
                    todo.append(after)
    except _Stop as stop:
        raise RuleBroken(stop.rule, [_who(scene.cast), *_story(came, stop.world, stop.told)]) from None
    return Found(len(came), book.plans)


def _who(cast: Cast) -> str:
    return ", ".join(f"{LETTERS[place]} is {slot.role} {slot.index}" for place, slot in enumerate(cast.slots))


class _Stop(Exception):
    def __init__(self, rule: str, world: World, told: str) -> None:
        super().__init__(rule)
        self.rule, self.world, self.told = rule, world, told


def _next(book: Book, world: World, shell: Shell, moves: frozenset[str]) -> Iterator[tuple[str, World]]:
    for told, sight in sights(world, moves):
        limits = [ALL, *range(1, DEATHS + 1)] if "dying pass" in moves else [ALL]
        for limit in limits:
            done = obey(book, world, sight, limit, shell)
            if limit != ALL and done.writes >= done.wanted:
                break
            text = told if limit == ALL else f"{told}, dying after {limit}"
            if done.broken:
                raise _Stop(done.broken[0], world, text)
            yield text, done.world
    for name, move in MOVES.items():
        if name in moves:
            yield from move(book, world)


def _needed(world: World, shell: Shell) -> World:
    """What nobody can act on any more is forgotten, so that more histories meet: the fence stops every old view."""
    view = world.view
    if view is None or view.fresh or shell.fence != "always" or not shell.versioned:
        return world
    return world._replace(view=view._replace(spec=-1, status=-1))


def _settles(book: Book, world: World, shell: Shell, rested: set[World]) -> str:
    """From here on nothing goes wrong. Does it come to rest, in the right place?"""
    world = world._replace(left=(), view=None)
    way: list[World] = []
    looks = 0
    for _ in range(ROUNDS):
        if world in rested:
            rested.update(way)
            return ""
        way.append(world)
        after, broken = settled_step(book, world, shell)
        if rule := (broken or [after_step(book, world, after)])[0]:
            return rule
        if after == world:
            later = _later(book, world)
            looks += 1
            if later is None or (world.refused and looks > LOOKS):
                rule = at_rest(book, world)
                if not rule:
                    rested.update(way)
                return rule
            after = world._replace(now=later)
        world = after
    return "it never settles"


def _later(book: Book, world: World) -> int | None:
    """When the operator looks again."""
    after = book.act(world, Sight.of(world)).after
    return None if after is None else max(-int(-after // 1), world.now + 1)


def _story(came: dict[World, tuple[World | None, str]], world: World, last: str) -> list[str]:
    steps = [last]
    at: World | None = world
    while at is not None:
        at, told = came[at]
        steps.append(told)
    return [step for step in reversed(steps) if step]
