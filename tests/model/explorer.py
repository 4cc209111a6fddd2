"""Every world that a small job can reach, visited breadth first; the shortest story that breaks a rule is told.

The decision is the real one (`core.decide`); the executor's order is modelled in `executor_model`, all else in
`transitions`.

Transitions: a pass, whole, dying after its 1st, 2nd, 3rd write, or ended there by a 503, before or after the next write
is made; a pass on a remembered old view; a pass on a fresh job and old children; the operator's restart; Job and
StatefulSet controllers, node, garbage collector; containers ending with 0, 1, 137, OOMKilled or drained; a stall; a
pod, a child Job, a StatefulSet or an extra deleted by a person; suspend, resume, edit, scale, delete; time passing to
the plan's `after`, or for longer than any back-off. `Bounds` says how often each may happen in one history, and the
initial state's `Scenario` which kind of job it is.

Old children, exactly: the real executor waits until its own child writes have arrived in its stores, so old children
always contain them, unless the operator was restarted. What others did may be missing from any resource
(`executor_model`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.executor_model import ALL, MADE, REFUSED, ExecutorModel, apply_plan
from tests.model.plan_cache import PlanCache, Snapshot
from tests.model.rules import after_step, at_rest
from tests.model.scenarios import Scenario, tf
from tests.model.transitions import PASSES, TRANSITIONS, Bounds, settled_step, snapshots, spend
from tests.model.world import LETTERS, ChildState, OtherChild, World
from trainyard.objects import Json

ROUNDS = 40
REAL = ExecutorModel()
DEATHS = 3  # after so many writes the operator may die; what comes later dies alike
LOOKS = 3  # a name that somebody else holds is tried again for ever; after so many times we have seen enough
EVERY = frozenset([*TRANSITIONS, *PASSES])


class RuleBroken(Exception):
    """A rule does not hold."""

    def __init__(self, rule: str, story: list[str]) -> None:
        super().__init__(rule, story)  # its arguments, so that it comes whole out of another process
        self.rule, self.story = rule, story

    def __str__(self) -> str:
        return "\n  ".join([self.rule, *self.story])


@dataclass(frozen=True)
class InitialState:
    """Where the exploration starts: a job that no operator has observed yet."""

    policies: Json = field(default_factory=dict)
    scenario: Scenario = field(default_factory=tf)
    foreign: str = ""  # an object of that name exists and is not ours
    foreign_kind: str = "Job"
    bounds: Bounds = field(default_factory=Bounds)

    def world(self, cache: PlanCache) -> World:
        children: tuple[ChildState, ...] = (
            (OtherChild(self.foreign_kind, self.foreign, 0, True),) if self.foreign else ()
        )
        spec = cache.number(self.scenario.with_policies(self.scenario.spec, self.policies))
        gens = (0,) * (len(self.scenario.slots) + 1)
        return World(spec, cache.number({}), children, gens, left=self.bounds.start())


@dataclass
class Found:
    """What an exploration came to."""

    worlds: int
    plans: int


def explore(initial_state: InitialState, executor: ExecutorModel = REAL, transitions: frozenset[str] = EVERY) -> Found:
    """Visit every world. Raises RuleBroken."""
    cache = PlanCache(initial_state.scenario)
    first = initial_state.world(cache)
    came: dict[World, tuple[World | None, str]] = {first: (None, "")}
    rested: set[World] = set()
    todo = deque([first])
    try:
        while todo:
            world = todo.popleft()
            if rule := _settles(cache, world, executor, rested):
                raise _Stop(rule, world, "from here on nothing goes wrong")
            for label, after in _next(cache, world, executor, transitions):
                after = _needed(after, executor)
                if after not in came:
                    if rule := after_step(cache, world, after):
                        raise _Stop(rule, world, label)
                    came[after] = (world, label)
                    todo.append(after)
    except _Stop as stop:
        raise RuleBroken(stop.rule, [_who(initial_state.scenario), *_story(came, stop.world, stop.label)]) from None
    return Found(len(came), cache.plans)


def _who(scenario: Scenario) -> str:
    return ", ".join(f"{LETTERS[place]} is {slot.role} {slot.index}" for place, slot in enumerate(scenario.slots))


class _Stop(Exception):
    def __init__(self, rule: str, world: World, label: str) -> None:
        super().__init__(rule)
        self.rule, self.world, self.label = rule, world, label


def _next(
    cache: PlanCache, world: World, executor: ExecutorModel, transitions: frozenset[str]
) -> Iterator[tuple[str, World]]:
    for label, snapshot in snapshots(world, transitions):
        limits = [ALL, *range(1, DEATHS + 1)] if "dying pass" in transitions else [ALL]
        for limit in limits:
            done = apply_plan(cache, world, snapshot, limit, executor)
            if limit != ALL and done.writes >= done.wanted:
                break
            text = label if limit == ALL else f"{label}, dying after {limit}"
            if done.broken:
                raise _Stop(done.broken[0], world, text)
            yield text, done.world
        yield from _failing(cache, world, label, snapshot, executor) if "failing pass" in transitions else ()
    for name, transition in TRANSITIONS.items():
        if name in transitions:
            yield from transition(cache, world)


def _failing(
    cache: PlanCache, world: World, label: str, snapshot: Snapshot, executor: ExecutorModel
) -> Iterator[tuple[str, World]]:
    """The pass ends with an error, and the operator lives on."""
    if (after := spend(world, "errors")) is None:
        return
    for limit in range(1, DEATHS + 1):
        for error in (REFUSED, MADE):
            done = apply_plan(cache, after, snapshot, limit, executor, error)
            if done.writes >= done.wanted:
                return
            text = f"{label}, 503 after {limit}{', which was made' if error == MADE else ''}"
            if done.broken:
                raise _Stop(done.broken[0], world, text)
            yield text, done.world


def _needed(world: World, executor: ExecutorModel) -> World:
    """What nobody can act on any more is forgotten, so that more histories meet: the fence stops every old view."""
    view = world.view
    if view is None or view.fresh or executor.fence != "always" or not executor.versioned:
        return world
    return world._replace(view=view._replace(spec=-1, status=-1))


def _settles(cache: PlanCache, world: World, executor: ExecutorModel, rested: set[World]) -> str:
    """Whether the world converges to the right state when nothing fails any more."""
    world = world._replace(left=(), view=None)
    way: list[World] = []
    looks = 0
    for _ in range(ROUNDS):
        if world in rested:
            rested.update(way)
            return ""
        way.append(world)
        after, broken = settled_step(cache, world, executor)
        if rule := (broken or [after_step(cache, world, after)])[0]:
            return rule
        if after == world:
            later = _later(cache, world)
            looks += 1
            if later is None or (world.refused and looks > LOOKS):
                rule = at_rest(cache, world)
                if not rule:
                    rested.update(way)
                return rule
            after = world._replace(now=later)
        world = after
    return "it never settles"


def _later(cache: PlanCache, world: World) -> int | None:
    """When the operator looks again."""
    after = cache.planned_writes(world, Snapshot.of(world)).after
    return None if after is None else max(-int(-after // 1), world.now + 1)


def _story(came: dict[World, tuple[World | None, str]], world: World, last: str) -> list[str]:
    steps = [last]
    at: World | None = world
    while at is not None:
        at, label = came[at]
        steps.append(label)
    return [step for step in reversed(steps) if step]
