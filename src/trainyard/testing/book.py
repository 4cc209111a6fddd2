"""Interned JSON values and remembered plans: what makes visiting every world cheap.

The plans come from the real `core.decide`; each question is asked once. A plan is kept as an `Act`: what the shell
needs of it, with statuses and specs as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from trainyard import core
from trainyard.core.job import Memory, Wanted
from trainyard.core.model import Config, Ref, Refusal, Seen
from trainyard.core.status import remember
from trainyard.objects import Json, decode, encode
from trainyard.testing.world import JOB_UID, ROLES, Kids, Thing, View, World, observed


class Drop(NamedTuple):
    """A delete: of the child with that name; `job` is the TfJob itself."""

    kind: str
    name: str
    uid: str


class Make(NamedTuple):
    """A create: of a slot's batch Job, or of an extra (slot -1)."""

    kind: str
    name: str
    slot: int
    attempt: int


class Act(NamedTuple):
    """A plan, as the shell carries it out."""

    status: int
    idle: bool
    spec_patch: Json | None
    deletes: tuple[Drop, ...]
    creates: tuple[Make, ...]
    after: float | None


class Facts(NamedTuple):
    """What the rules read from a status."""

    end: str
    reason: str  # of the end
    suspended: bool
    started: bool
    attempts: tuple[int, int, int]
    failures: tuple[int, int, int]
    resumes: int
    completion: float | None
    true: frozenset[str]  # types of the conditions that are True
    ran: bool
    start: float | None


class Sight(NamedTuple):
    """What the shell looks at in one pass: a job (fresh or not) and children (current or not)."""

    spec: int
    status: int
    deleting: bool
    kids: Kids
    fresh: bool  # the job has not been written since
    current: bool  # everything is as it is

    @classmethod
    def of(cls, world: World) -> Sight:
        return cls(world.spec, world.status, world.deleting, world.kids, True, True)

    @classmethod
    def old(cls, view: View) -> Sight:
        """The whole remembered view; only a fence saves us."""
        return cls(view.spec, view.status, view.deleting, view.kids, view.fresh, False)

    @classmethod
    def mixed(cls, world: World, view: View) -> Sight:
        """A fresh job and stale children."""
        return cls(world.spec, world.status, world.deleting, view.kids, True, False)


@dataclass
class Book:
    """One exploration's memory of values."""

    kind: core.Kind
    config: Config = field(default_factory=Config)
    plans: int = 0
    _values: list[Json] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _wanted: dict[int, Wanted] = field(default_factory=dict)
    _facts: dict[int, Facts] = field(default_factory=dict)
    _acts: dict[object, Act] = field(default_factory=dict)

    def number(self, value: Json) -> int:
        raw = encode(value)
        if raw not in self._numbers:
            self._numbers[raw] = len(self._values)
            self._values.append(decode(raw))
        return self._numbers[raw]

    def value(self, number: int) -> Json:
        return self._values[number]

    def wanted(self, spec: int) -> Wanted:
        if spec not in self._wanted:
            self._wanted[spec] = self.kind.read(self.value(spec), "small")
        return self._wanted[spec]

    def act(self, world: World, sight: Sight) -> Act:
        """The plan for what `sight` shows, at the world's time, knowing what the shell was refused."""
        key = (sight.spec, sight.status, sight.deleting, sight.kids, world.now, world.refused)
        if key not in self._acts:
            self._acts[key] = self._plan(sight, world.now, world.refused)
        return self._acts[key]

    def _plan(self, sight: Sight, now: int, refused: tuple[tuple[str, str, int, int], ...]) -> Act:
        self.plans += 1
        meta = {"name": "small", "namespace": "d", "uid": JOB_UID}
        wire: Json = {
            "metadata": {**meta, "deletionTimestamp": "2024-01-01T00:00:00Z"} if sight.deleting else meta,
            "spec": self.value(sight.spec),
            "status": self.value(sight.status),
        }
        job = core.read_with(self.kind, wire, self.wanted(sight.spec), self.config)
        children = tuple(child for child in map(observed, sight.kids) if child)
        taken = {
            Ref(kind, name): Refusal(409, "AlreadyExists", "taken", float(at), tries)
            for kind, name, tries, at in refused
        }
        plan = core.decide(job, Seen(children, frozenset(), taken, self.config), float(now))
        return Act(
            status=self.number(plan.status),
            idle=plan.idle,
            spec_patch=plan.spec_patch,
            deletes=tuple(Drop(one.gvk.kind, one.name, one.uid) for one in plan.deletes),
            creates=tuple(
                Make(one.gvk.kind, one.name, ROLES.index(one.slot.role) if one.slot else -1, one.attempt)
                for one in plan.creates
            ),
            after=plan.after,
        )

    def facts(self, status: int) -> Facts:
        if status not in self._facts:
            self._facts[status] = _facts(remember(self.kind, {"status": self.value(status)}))
        return self._facts[status]


def _facts(memory: Memory) -> Facts:
    attempts = tuple(memory.role(role).attempt for role in ROLES)
    failures = tuple(memory.role(role).failures for role in ROLES)
    true = frozenset(str(one["type"]) for one in memory.conditions if one.get("status") == "True")
    reason = next((str(one.get("reason")) for one in memory.conditions if one["type"] == memory.end), "")
    return Facts(
        memory.end, reason, memory.suspended, memory.started, attempts, failures,  # type: ignore[arg-type]  # three roles
        memory.resumes, memory.completion, true, memory.ran, memory.start,
    )  # fmt: skip


def holds(outer: object, inner: object) -> bool:
    """True when everything that `inner` says is still said by `outer`."""
    if isinstance(inner, dict):
        return isinstance(outer, dict) and all(key in outer and holds(outer[key], inner[key]) for key in inner)
    if isinstance(inner, list):
        return isinstance(outer, list) and len(outer) == len(inner) and all(map(holds, outer, inner))
    return outer == inner


def merged(value: Json, patch: Json) -> Json:
    """A JSON merge patch, carried out."""
    result = {**value}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            below = result.get(key)
            result[key] = merged(below, part) if isinstance(part, dict) and isinstance(below, dict) else part
    return result


def foreign_name(world: World, kind: str, name: str) -> bool:
    return any(isinstance(kid, Thing) and kid.foreign and (kid.kind, kid.name) == (kind, name) for kid in world.kids)
