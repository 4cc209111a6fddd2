"""Interned JSON values and remembered plans: what makes visiting every world cheap.

The plans come from the real `core.decide.decide`, the bodies of children from the real `core.render`; each question is
asked once. A plan is kept as an `PlannedWrites`: what the executor needs of it, with statuses, specs and bodies as
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.scenarios import Scenario
from tests.model.world import (
    JOB_UID,
    NAME,
    START,
    Batch,
    ChildState,
    ChildStates,
    OtherChild,
    Pod,
    Set,
    View,
    World,
    resource,
)
from trainyard import core
from trainyard.core.children import ContainerRecord, decode_child, encode_containers
from trainyard.core.decide import decide
from trainyard.core.job_state import JobStatus, ParsedSpec
from trainyard.core.kind import Job
from trainyard.core.model import Child, ChildStatus, Config, Observed, PlannedCreate, Refusal
from trainyard.core.status import parse_status
from trainyard.objects import Json, Ref, decode, encode
from trainyard.objects.no_progress import NoProgress
from trainyard.objects.structs import replace

NO_PROGRESS = NoProgress(float(START), True, 5.0, "waits").text


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
    depends_on: tuple[Ref, ...] = ()


class PlannedWrites(NamedTuple):
    """A plan, as the executor carries it out."""

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
    has_run: bool
    start: float | None
    counted: tuple[str, ...]
    has: frozenset[int]  # slots that the job had when it was looked at last
    causes: tuple[tuple[str, int], ...]  # restarts by cause, without those of the program


class Snapshot(NamedTuple):
    """What the executor looks at in one pass: a job (fresh or not) and children (current or not)."""

    spec: int
    status: int
    deleting: bool
    children: ChildStates
    fresh: bool  # the job has not been written since
    current: bool  # everything is as it is

    @classmethod
    def of(cls, world: World) -> Snapshot:
        return cls(world.spec, world.status, world.deleting, world.children, True, True)

    @classmethod
    def old(cls, view: View) -> Snapshot:
        """The whole remembered view; only a fence saves us."""
        return cls(view.spec, view.status, view.deleting, view.children, view.fresh, False)

    @classmethod
    def mixed(cls, world: World, view: View) -> Snapshot:
        """A fresh job and stale children."""
        return cls(world.spec, world.status, world.deleting, view.children, True, False)


@dataclass
class PlanCache:
    """One exploration's memory of values."""

    scenario: Scenario
    config: Config = field(default_factory=Config)
    plans: int = 0
    _values: list[Json] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _parsed_specs: dict[int, ParsedSpec] = field(default_factory=dict)
    _facts: dict[int, WorldFacts] = field(default_factory=dict)
    _planned_writes: dict[object, PlannedWrites] = field(default_factory=dict)
    _children: dict[ChildState, Child | None] = field(default_factory=dict)
    _wants: dict[int, frozenset[int]] = field(default_factory=dict)
    _of_specs: dict[int, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self._job(self.number(self.scenario.spec), self.number({}), False)
        self.names = tuple(self.scenario.kind.pods.name(first, slot) for slot in self.scenario.slots)

    def number(self, value: Json) -> int:
        raw = encode(value)
        if raw not in self._numbers:
            self._numbers[raw] = len(self._values)
            self._values.append(decode(raw))
        return self._numbers[raw]

    def value(self, number: int) -> Json:
        return self._values[number]

    def wanted(self, spec: int) -> ParsedSpec:
        if spec not in self._parsed_specs:
            kind, source = self.scenario.kind, self.scenario.source
            self._parsed_specs[spec] = core.parse_spec(
                kind, {"metadata": {"name": NAME}, "spec": self.value(spec)}, source
            )
        return self._parsed_specs[spec]

    def wants(self, spec: int) -> frozenset[int]:
        """The slots that the spec has."""
        if spec not in self._wants:
            self._wants[spec] = self.scenario.wants(self.value(spec))
        return self._wants[spec]

    def policies(self, spec: int) -> Json:
        """The part of the spec that has the policies."""
        return self.scenario.policies(self.value(spec))

    def ready(self, spec: int) -> bool:
        """The defaults are stored."""
        return not self.scenario.kind.api.has_runtime_id or "RuntimeId" in self.value(spec)

    def planned_writes(self, world: World, snapshot: Snapshot) -> PlannedWrites:
        """The plan for the objects in `snapshot`, at the world's time, with the executor's refusals."""
        key = (snapshot.spec, snapshot.status, snapshot.deleting, snapshot.children, world.now, world.refused)
        if key not in self._planned_writes:
            self._planned_writes[key] = self._plan(snapshot, world.now, world.refused)
        return self._planned_writes[key]

    def _plan(self, snapshot: Snapshot, now: int, refused: tuple[tuple[str, str, int, int], ...]) -> PlannedWrites:
        self.plans += 1
        job = self._job(snapshot.spec, snapshot.status, snapshot.deleting)
        children = tuple(child for child in map(self.observed, snapshot.children) if child)
        taken = {
            Ref(kind, name): Refusal(409, "AlreadyExists", "taken", float(at), tries)
            for kind, name, tries, at in refused
        }
        plan = decide(job, Observed(children, frozenset(), taken, self.config), float(now))
        status = self.number(plan.status)
        job_now = self._job(snapshot.spec, status, snapshot.deleting) if plan.creates and self.scenario.bodies else job
        return PlannedWrites(
            status=status,
            idle=plan.idle,
            spec_patch=plan.spec_patch,
            deletes=tuple(
                Drop(delete.gvk.kind, delete.name, delete.uid, delete.propagation == "Foreground")
                for delete in plan.deletes
            ),
            patches=tuple(Fix(patch.gvk.kind, patch.name, self.number(patch.body)) for patch in plan.patches),
            creates=tuple(self._make(job_now.with_slots(plan.slots), create) for create in plan.creates),
            after=plan.requeue_at,
        )

    def _job(self, spec: int, status: int, deleting: bool) -> Job:
        meta = {"name": NAME, "namespace": "d", "uid": JOB_UID, "annotations": dict(self.scenario.annotations)}
        wire: Json = {
            "metadata": {**meta, "deletionTimestamp": "2024-01-01T00:00:00Z"} if deleting else meta,
            "spec": self.value(spec),
            "status": self.value(status),
        }
        job = core.parse_job_with(self.scenario.kind, wire, self.wanted(spec), self.config)
        # No edit changes the roles of a job with a template source, so that what its spec leads to stays the same.
        return replace(job, spec_cache=self._of_specs.setdefault(spec, {})) if self.scenario.source else job

    def _make(self, job: Job, create: PlannedCreate) -> Make:
        slot = self.scenario.place(create.slot) if create.slot else -1
        body = self.number(core.render_child(job, create)) if self.scenario.bodies else 0
        return Make(create.gvk.kind, create.name, slot, create.attempt, body, create.depends_on)

    def body(self, world: World, slot: int, attempt: int) -> Json:
        """What a slot would be filled with now."""
        job = self._job(world.spec, world.status, False)
        create = PlannedCreate(
            job.carrier(self.scenario.slots[slot].role).gvk, self.names[slot], self.scenario.slots[slot], attempt
        )
        return core.render_child(job, create)

    @property
    def never_read(self) -> frozenset[str]:
        """The resources that the operator creates without a right to read them (AuxiliaryObject.exists_with)."""
        return frozenset(gvk.kind for gvk in self.scenario.kind.roles.created_resources)

    def is_running(self, world: World) -> bool:
        """Whether the replicas run of which the job says that it runs."""
        job = self._job(world.spec, world.status, False)
        kind, slots = self.scenario.kind, [self.scenario.place(slot) for slot in job.running_slots()]
        runs = {pod.slot for pod in world.pods() if pod.phase == "Running"}
        return runs.issuperset(slots) if kind.lifecycle.all_run else not runs.isdisjoint(slots)

    def extras(self, world: World) -> dict[Ref, Json]:
        """What else the job has, and what that would be made of now."""
        ours = (obj for obj in world.children if not (isinstance(obj, OtherChild) and obj.foreign))
        job = self._job(world.spec, world.status, False)
        job = replace(job, owned=frozenset(Ref(resource(obj), self.name(obj)) for obj in ours))
        creates = [
            PlannedCreate(auxiliary.gvk, auxiliary.name, None) for auxiliary in self.scenario.kind.auxiliary(job)
        ]
        return {create.ref: core.render_child(job, create) if self.scenario.bodies else {} for create in creates}

    def held(self, world: World) -> frozenset[tuple[str, str]]:
        """The names that other owners hold, and those of children that wait until the job owns these."""
        held = {(obj.kind, obj.name) for obj in world.other_children() if obj.foreign}
        job = self._job(world.spec, world.status, False)
        needs = {ref: extra.depends_on for ref, extra in job.auxiliary_objects.items()}
        needs |= {Ref(self.scenario.resource(at), self.names[at]): self.scenario.kind.pods.dependencies(job, slot)
                  for at, slot in enumerate(self.scenario.slots)} if held else {}  # fmt: skip
        for _ in needs if held else ():  # until nothing more is
            held |= {(ref.kind, ref.name) for ref, holders in needs.items() if held.intersection(map(tuple, holders))}
        return frozenset(held)

    def facts(self, status: int) -> WorldFacts:
        if status not in self._facts:
            memory = parse_status(self.scenario.kind, {"status": self.value(status)})
            self._facts[status] = _facts(memory, self.scenario)
        return self._facts[status]

    def observed(self, obj: ChildState) -> Child | None:
        """The operator's record of a child; None for what its selector does not show."""
        if obj not in self._children:
            self._children[obj] = self._observed(obj)
        return self._children[obj]

    def _observed(self, obj: ChildState) -> Child | None:
        if isinstance(obj, OtherChild):
            meta = {**self.value(obj.body).get("metadata", {}), "name": obj.name, "namespace": "d", "uid": obj.uid}
            owner = {"uid": JOB_UID, "controller": True}
            return (
                None
                if obj.foreign or obj.kind in self.never_read
                else decode_child({"metadata": {**meta, "ownerReferences": [owner]}}, obj.kind)
            )
        slot = self.scenario.slots[obj.slot]
        child = Child(
            kind=resource(obj), namespace="d", name=self.name(obj), uid=obj.uid, owner_uid=JOB_UID, role=slot.role,
            index=slot.index, attempt=obj.attempt, created=float(START),
        )  # fmt: skip
        if isinstance(obj, Set):
            return replace(child, deleting=obj.deleting, status=ChildStatus(replicas=obj.replicas))
        if isinstance(obj, Batch):
            reason = "BackoffLimitExceeded" if obj.phase == "Failed" else ""
            status = ChildStatus(phase=obj.phase, reason=reason)
            return replace(child, deleting=obj.deleting, finished_at=float(obj.ended), status=status)
        state = {"Pending": "waiting", "Running": "running"}.get(obj.phase, "terminated")
        record = ContainerRecord(
            self.scenario.kind.roles.container, state, obj.code, obj.reason, obj.restarts, False,
            restarts=obj.alone and obj.code != 0 and self.scenario.in_place({}, obj.slot),
        )  # fmt: skip
        status = ChildStatus(
            phase=obj.phase, reason=obj.disruption, disrupted=obj.disrupted, containers=encode_containers(record),
            no_progress=NO_PROGRESS if obj.stalled else "",
        )  # fmt: skip
        return replace(
            child, job_uid=JOB_UID, owner_uid=obj.owner, deleting=obj.deleting, created=float(START + obj.number),
            start_time=float(obj.began), finished_at=float(obj.ended), status=status,
        )  # fmt: skip

    def name(self, obj: ChildState) -> str:
        if isinstance(obj, OtherChild):
            return obj.name
        return obj.uid if isinstance(obj, Pod) and not obj.alone else self.names[obj.slot]

    def named(self, world: World, kind: str, name: str) -> ChildState | None:
        return next((obj for obj in world.children if self.name(obj) == name and resource(obj) == kind), None)

    def failure(self, slot: int, uid: str, attempt: int) -> tuple[int, str]:
        """The key by which `Truth` identifies a failed attempt: in a gang, all failures of an attempt are one."""
        return self.scenario.counts(slot), f"attempt-{attempt}" if self.scenario.gang else uid


def _facts(memory: JobStatus, scenario: Scenario) -> WorldFacts:
    attempts = tuple(memory.roles[slot.role].attempt if slot.role in memory.roles else -1 for slot in scenario.slots)
    failures = tuple(memory.role(role).failures for role in scenario.roles)
    sizes = {
        slot.role: memory.role(slot.role).replicas if memory.roles else len(scenario.slots) for slot in scenario.slots
    }
    has = (place for place, slot in enumerate(scenario.slots) if slot.index < sizes[slot.role])
    true = frozenset(str(condition["type"]) for condition in memory.conditions if condition.get("status") == "True")
    reason = memory.failure_cause  # the condition's reason may be the kind's own
    return WorldFacts(
        memory.outcome, scenario.reasons.get(reason, reason), memory.suspended, memory.started, attempts,
        (sum(failures),) if scenario.gang else failures,
        memory.resume_count, memory.completion_time, true, memory.has_run, memory.start_time, memory.counted_failures,
        frozenset(has), tuple(sorted(memory.restart_causes.items())),
    )  # fmt: skip


def holds(outer: object, inner: object) -> bool:
    """True when `outer` has everything that `inner` has."""
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
    return any(
        isinstance(obj, OtherChild) and obj.foreign and (obj.kind, obj.name) == (kind, name) for obj in world.children
    )
