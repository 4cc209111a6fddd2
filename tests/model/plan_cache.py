"""Interned JSON values and remembered plans: what makes visiting every world cheap.

The plans come from the real `core.decide`, the bodies of children from the real `core.render`; each question is asked
once. A plan is kept as an `Act`: what the shell needs of it, with statuses, specs and bodies as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.scenarios import Cast
from tests.model.world import JOB_UID, NAME, START, Batch, Kid, Kids, Pod, Set, Thing, View, World, resource
from trainyard import core
from trainyard.core.children import ContainerRecord, decode_child, encode_containers
from trainyard.core.job import Job, JobStatus, ParsedSpec
from trainyard.core.model import Child, Config, Observed, PlannedCreate, Refusal
from trainyard.core.status import parse_status
from trainyard.objects import Json, Ref, decode, encode
from trainyard.objects.structs import replace


class Drop(NamedTuple):
    """A delete: of the child with that name, or of the job itself."""

    kind: str
    name: str
    uid: str
    waits: bool = False  # it goes after its pods


class Fix(NamedTuple):
    """A merge patch."""

    kind: str
    name: str
    body: int


class Make(NamedTuple):
    """A create: of what fills a slot, or of an extra (slot -1)."""

    kind: str
    name: str
    slot: int
    attempt: int
    body: int = 0


class Act(NamedTuple):
    """A plan, as the shell carries it out."""

    status: int
    idle: bool
    spec_patch: Json | None
    deletes: tuple[Drop, ...]
    patches: tuple[Fix, ...]
    creates: tuple[Make, ...]
    after: float | None


class WorldFacts(NamedTuple):
    """What the rules read from a status."""

    end: str
    reason: str  # of the end
    suspended: bool
    started: bool
    attempts: tuple[int, ...]  # by slot; -1: the role is not remembered
    failures: tuple[int, ...]  # by what counts them
    resumes: int
    completion: float | None
    true: frozenset[str]  # types of the conditions that are True
    ran: bool
    start: float | None
    counted: tuple[str, ...]
    has: frozenset[int]  # slots that the job had when it was looked at last


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

    cast: Cast
    config: Config = field(default_factory=Config)
    plans: int = 0
    _values: list[Json] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _wanted: dict[int, ParsedSpec] = field(default_factory=dict)
    _facts: dict[int, WorldFacts] = field(default_factory=dict)
    _acts: dict[object, Act] = field(default_factory=dict)
    _children: dict[Kid, Child | None] = field(default_factory=dict)
    _wants: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self._job(self.number(self.cast.spec), self.number({}), False)
        self.names = tuple(self.cast.kind.pods.name(first, slot) for slot in self.cast.slots)

    def number(self, value: Json) -> int:
        raw = encode(value)
        if raw not in self._numbers:
            self._numbers[raw] = len(self._values)
            self._values.append(decode(raw))
        return self._numbers[raw]

    def value(self, number: int) -> Json:
        return self._values[number]

    def wanted(self, spec: int) -> ParsedSpec:
        if spec not in self._wanted:
            self._wanted[spec] = self.cast.kind.api.read(self.value(spec), NAME)
        return self._wanted[spec]

    def wants(self, spec: int) -> frozenset[int]:
        """The slots that the spec has."""
        if spec not in self._wants:
            self._wants[spec] = self.cast.wants(self.value(spec))
        return self._wants[spec]

    def ready(self, spec: int) -> bool:
        """The defaults are stored."""
        return not self.cast.kind.api.has_runtime_id or "RuntimeId" in self.value(spec)

    def act(self, world: World, sight: Sight) -> Act:
        """The plan for what `sight` shows, at the world's time, knowing what the shell was refused."""
        key = (sight.spec, sight.status, sight.deleting, sight.kids, world.now, world.refused)
        if key not in self._acts:
            self._acts[key] = self._plan(sight, world.now, world.refused)
        return self._acts[key]

    def _plan(self, sight: Sight, now: int, refused: tuple[tuple[str, str, int, int], ...]) -> Act:
        self.plans += 1
        job = self._job(sight.spec, sight.status, sight.deleting)
        children = tuple(child for child in map(self.observed, sight.kids) if child)
        taken = {
            Ref(kind, name): Refusal(409, "AlreadyExists", "taken", float(at), tries)
            for kind, name, tries, at in refused
        }
        plan = core.decide(job, Observed(children, frozenset(), taken, self.config), float(now))
        status = self.number(plan.status)
        made = self._job(sight.spec, status, sight.deleting) if plan.creates and self.cast.bodies else job
        return Act(
            status=status,
            idle=plan.idle,
            spec_patch=plan.spec_patch,
            deletes=tuple(
                Drop(one.gvk.kind, one.name, one.uid, one.propagation == "Foreground") for one in plan.deletes
            ),
            patches=tuple(Fix(one.gvk.kind, one.name, self.number(one.body)) for one in plan.patches),
            creates=tuple(self._make(made, one) for one in plan.creates),
            after=plan.requeue_at,
        )

    def _job(self, spec: int, status: int, deleting: bool) -> Job:
        meta = {"name": NAME, "namespace": "d", "uid": JOB_UID}
        wire: Json = {
            "metadata": {**meta, "deletionTimestamp": "2024-01-01T00:00:00Z"} if deleting else meta,
            "spec": self.value(spec),
            "status": self.value(status),
        }
        return core.parse_job_with(self.cast.kind, wire, self.wanted(spec), self.config)

    def _make(self, job: Job, create: PlannedCreate) -> Make:
        slot = self.cast.place(create.slot) if create.slot else -1
        body = self.number(core.render_child(job, create)) if self.cast.bodies else 0
        return Make(create.gvk.kind, create.name, slot, create.attempt, body)

    def body(self, world: World, slot: int, attempt: int) -> Json:
        """What a slot would be filled with now."""
        job = self._job(world.spec, world.status, False)
        create = PlannedCreate(
            job.carrier(self.cast.slots[slot].role).gvk, self.names[slot], self.cast.slots[slot], attempt
        )
        return core.render_child(job, create)

    def extras(self, world: World) -> dict[Ref, Json]:
        """What else the job has, and what that would be made of now."""
        ours = (kid for kid in world.kids if not (isinstance(kid, Thing) and kid.foreign))
        job = self._job(world.spec, world.status, False)
        job = replace(job, owned=frozenset(Ref(resource(kid), self.name(kid)) for kid in ours))
        creates = [PlannedCreate(one.gvk, one.name, None) for one in self.cast.kind.auxiliary(job)]
        return {one.ref: core.render_child(job, one) if self.cast.bodies else {} for one in creates}

    def held(self, world: World) -> frozenset[tuple[str, str]]:
        """The names that are somebody else's, and those of children that are not made before these are ours."""
        held = {(kid.kind, kid.name) for kid in world.things() if kid.foreign}
        job = self._job(world.spec, world.status, False)
        needs = {ref: extra.depends_on for ref, extra in job.auxiliary_objects.items()}
        needs |= {Ref(self.cast.resource(at), self.names[at]): self.cast.kind.pods.dependencies(job, slot)
                  for at, slot in enumerate(self.cast.slots)} if held else {}  # fmt: skip
        for _ in needs if held else ():  # until nothing more is
            held |= {(ref.kind, ref.name) for ref, given in needs.items() if held.intersection(map(tuple, given))}
        return frozenset(held)

    def facts(self, status: int) -> WorldFacts:
        if status not in self._facts:
            memory = parse_status(self.cast.kind, {"status": self.value(status)})
            self._facts[status] = _facts(memory, self.cast)
        return self._facts[status]

    def observed(self, kid: Kid) -> Child | None:
        """The operator's record of a child; None for what its selector does not show."""
        if kid not in self._children:
            self._children[kid] = self._observed(kid)
        return self._children[kid]

    def _observed(self, kid: Kid) -> Child | None:
        if isinstance(kid, Thing):
            meta = {**self.value(kid.body).get("metadata", {}), "name": kid.name, "namespace": "d", "uid": kid.uid}
            owner = {"uid": JOB_UID, "controller": True}
            return None if kid.foreign else decode_child({"metadata": {**meta, "ownerReferences": [owner]}}, kid.kind)
        slot = self.cast.slots[kid.slot]
        child = Child(
            kind=resource(kid), namespace="d", name=self.name(kid), uid=kid.uid, owner_uid=JOB_UID, role=slot.role,
            index=slot.index, attempt=kid.attempt, created=float(START),
        )  # fmt: skip
        if isinstance(kid, Set):
            return replace(child, replicas=kid.replicas, deleting=kid.deleting)
        if isinstance(kid, Batch):
            reason = "BackoffLimitExceeded" if kid.phase == "Failed" else ""
            return replace(child, deleting=kid.deleting, phase=kid.phase, reason=reason, finished_at=float(kid.ended))
        state = {"Pending": "waiting", "Running": "running"}.get(kid.phase, "terminated")
        one = ContainerRecord(self.cast.kind.roles.container, state, kid.code, kid.reason, kid.restarts, False)
        return replace(
            child, job_uid=JOB_UID, owner_uid=kid.owner, phase=kid.phase, deleting=kid.deleting,
            disrupted=kid.disrupted, created=float(START + kid.number), start_time=float(kid.began),
            finished_at=float(kid.ended), containers=encode_containers(one),
            restarts_containers=kid.alone and self.cast.in_place({}, kid.slot),
        )  # fmt: skip

    def name(self, kid: Kid) -> str:
        if isinstance(kid, Thing):
            return kid.name
        return kid.uid if isinstance(kid, Pod) and not kid.alone else self.names[kid.slot]

    def named(self, world: World, kind: str, name: str) -> Kid | None:
        return next((kid for kid in world.kids if self.name(kid) == name and resource(kid) == kind), None)

    def failure(self, slot: int, uid: str, attempt: int) -> tuple[int, str]:
        """How `Truth` tells a failed attempt: of a gang, all failures of an attempt are one."""
        return self.cast.counts(slot), f"attempt-{attempt}" if self.cast.gang else uid


def _facts(memory: JobStatus, cast: Cast) -> WorldFacts:
    attempts = tuple(memory.roles[slot.role].attempt if slot.role in memory.roles else -1 for slot in cast.slots)
    failures = tuple(memory.role(role).failures for role in cast.roles)
    sizes = {slot.role: memory.role(slot.role).replicas if memory.roles else len(cast.slots) for slot in cast.slots}
    has = (place for place, slot in enumerate(cast.slots) if slot.index < sizes[slot.role])
    true = frozenset(str(one["type"]) for one in memory.conditions if one.get("status") == "True")
    reason = next((str(one.get("reason")) for one in memory.conditions if one["type"] == memory.outcome), "")
    return WorldFacts(
        memory.outcome, cast.reasons.get(reason, reason), memory.suspended, memory.started, attempts,
        (sum(failures),) if cast.gang else failures,
        memory.resume_count, memory.completion_time, true, memory.has_run, memory.start_time, memory.counted_failures,
        frozenset(has),
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
