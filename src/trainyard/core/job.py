"""A parsed job (`Job`), its observed state (`Replica`, `OwnedObjects`), and the description of a kind (`Kind`).

Rules for this file:
- Everything is frozen. A kind is data and pure functions; nothing here reads a clock.
- What differs between kinds is a field of `Kind`, `Role` or `WorkloadAdapter`, never an `if` on the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trainyard.core.model import Child, Config, Create, Delete, Event, Patch, Ref, Slot
from trainyard.objects import GVK, Json, NamespacedName, Problem
from trainyard.objects.resources import SERVICE
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.core.rules import Rule


class Role(msgspec.Struct, frozen=True):
    """One replica type of a job."""

    name: str  # as in the spec and in labels: MASTER
    replicas: int
    port: int
    template: Json | None  # None: it differs from the template that the job was started with, so no child is created
    digest: str = ""  # of the defaulted template and of the other fields that the children are rendered from
    container: str = ""  # the container whose exit code is the replica's; "": Kind.container

    def resized(self, replicas: int) -> Role:
        return replace(self, replicas=replicas)


class Policy(msgspec.Struct, frozen=True):
    """The optional policies of a job. None and "" mean unset: the behaviour that the old operators document."""

    clean_pod_policy: str = ""  # cleanPodPolicy: None, Running, All
    ttl_seconds_after_finished: int | None = None  # ttlSecondsAfterFinished
    active_deadline_seconds: int | None = None  # activeDeadlineSeconds
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""


class ParsedSpec(msgspec.Struct, frozen=True):
    """A parsed and defaulted spec: the result of `Kind.read`."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # the user's spec with all defaults, as it is to be stored
    problems: tuple[Problem, ...] = ()  # the first is the one that the old operators report
    unknown: tuple[str, ...] = ()  # paths of unknown fields


class RoleStatus(msgspec.Struct, frozen=True):
    """One role in `status.roles`: its attempt, its counted failures, and the shape that the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts that have been counted
    replicas: int = 0
    port: int = 0
    digest: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    """The parsed status. It and the children are the operator's only durable state of a job."""

    stored: Json
    conditions: tuple[Json, ...] = ()
    outcome: str = ""  # Succeeded or Failed once the job has ended; never reset
    started: bool = False  # children may exist
    suspended: bool = False
    has_run: bool = False  # a replica has run since the job was started or resumed
    failure_cause: str = (
        ""  # the reason of a failure before Messages.condition_message changes it, e.g. BackoffLimitExceeded
    )
    start_time: float | None = None
    completion_time: float | None = None
    resume_count: int = 0
    counted_failures: tuple[str, ...] = ()
    runtime_id: str = ""
    roles: Mapping[str, RoleStatus] = msgspec.field(default_factory=dict)

    def role(self, name: str) -> RoleStatus:
        return self.roles.get(name) or RoleStatus()


@dataclass(frozen=True, slots=True)
class Job:
    """One parsed job: the API object (`wire`), its spec (`parsed`) and its status (`status`)."""

    kind: Kind
    obj: Json
    key: NamespacedName
    uid: str
    runtime_id: str
    parsed: ParsedSpec
    status: JobStatus
    roles: tuple[Role, ...]  # in effect: the spec's, or those that the job was started with (read.effective_roles)
    config: Config
    owned: frozenset[Ref] | None = None  # the observed children that this job owns; None: unknown, assume all
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of `work()`, computed once and cached as `name`: a Job is immutable and may have 10000 slots."""
        if name not in self.cache:
            self.cache[name] = compute()
        return self.cache[name]

    @property
    def auxiliary_objects(self) -> Mapping[Ref, AuxiliaryObject]:
        """The objects of the job beside its replicas, in the order of their creation."""
        objects: Mapping[Ref, AuxiliaryObject] = self.cached(
            "extras", lambda: {auxiliary.ref: auxiliary for auxiliary in self.kind.auxiliary_objects(self)}
        )
        return objects

    @property
    def policy(self) -> Policy:
        return self.parsed.policy

    def blocking_objects(self) -> tuple[Ref, ...]:
        """The auxiliary objects that must exist before replicas are created.

        Services are left out: a Service of the same name that the job does not own blocks no replica (S8).
        """
        refs: tuple[Ref, ...] = self.cached(
            "early",
            lambda: tuple(
                ref
                for ref, auxiliary in self.auxiliary_objects.items()
                if not auxiliary.create_after_replicas and auxiliary.gvk != SERVICE
            ),
        )
        return refs

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    def carrier(self, role: str) -> WorkloadAdapter:
        return self.kind.carrier(role)

    def slots(self) -> list[Slot]:
        """A slot for each replica, or one for the whole role if its carrier has `one_object_per_role`."""
        return [
            Slot(role.name, index)
            for role in self.roles
            for index in range(min(role.replicas, 1) if self.carrier(role.name).one_object_per_role else role.replicas)
        ]

    def restarts_gang(self) -> bool:
        """True for a gang: a retry of one replica restarts all replicas, succeeded ones too (S33)."""
        return self.kind.restart_scope == "gang"


class Termination(msgspec.Struct, frozen=True):
    """How an attempt of a slot ended without success."""

    uid: str  # under which the failure is counted: the pod's, or the batch Job's if one Job is one attempt
    finished_at: float  # seconds since 1970
    started_at: float
    exit_code: int  # the exit code; -1: unknown
    reason: str
    container: str
    disrupted: bool  # by the node or the scheduler: the pod is replaced, and no failure is counted (S27)
    fails_job: bool  # not retryable
    ignored_until: float = 0.0  # ignored before this time: the watch event of its pod may still arrive
    job_reason: str = "PermanentFailure"  # the reason of the job's failure, if `fails_job`
    message: str = ""  # the container's termination message, or that of the pod or batch Job
    pod_is_gone: bool = False  # deleted: its container and exit code are unknown, its logs are lost


NO_POD = "has no pod yet"
"""The message of a replica whose object exists, but whose controller has not created its pod yet."""


class Replica(NamedTuple):
    """The observed state of one slot."""

    slot: Slot
    child: Child | None  # the object with its name, even one of an older attempt or in Terminating
    state: str  # Unknown, Starting, Running, Succeeded, Failed
    termination: Termination | None = None
    failed_attempts: tuple[str, ...] = ()  # uids of failed attempts that are visible
    restart_count: int = 0  # of containers, in place by the kubelet
    message: str = ""  # why it does not run
    pods_ended: bool = False  # none of its pods runs or will run, even if its controller's status lags
    last_restart_reason: str = ""  # why its container was last restarted in place
    running_pods: int = 1  # running pods; more than 1 only if one object runs the whole role
    failed_pods: int = 0  # status.failed of a batch Job that retries by itself

    @property
    def name(self) -> str:
        """For messages: "WORKER 0"."""
        return f"{self.slot.role} {self.slot.index}"


class Outcome(msgspec.Struct, frozen=True):
    """The phase of a job: Created, Starting, Running, Suspended, Succeeded, Failed or Invalid; with its reason.

    Starting is a job that has run and has no running replica at the moment.
    """

    phase: str
    reason: str = ""
    message: str = ""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Invalid")


class WorkloadAdapter(msgspec.Struct, frozen=True):
    """The type of object that runs a slot (batch Job, Pod or StatefulSet), as functions. No other code depends on it.

    observe(job, slot, owned): the observed state of the slot. render(job, slot, attempt): the object to create, without
    its name, owner reference and common labels. stop(replica, reason): the write that stops its pods, None when none is
    needed. resume(job, replica): the patch that scales it to the replicas of its role, None when none is needed.
    pods_ended(replica): True when none of its pods runs, so that they need no stop and keep their logs.
    failed_attempts(replica): the uids of failed attempts, each of which is counted once. `one_object_per_role`: one
    object runs all replicas of a role.
    """

    gvk: GVK
    observe: Callable[[Job, Slot, OwnedObjects], Replica]
    render: Callable[[Job, Slot, int], Json]
    stop: Callable[[Replica, str], Delete | Patch | None]
    resume: Callable[[Job, Replica], Patch | None]
    pods_ended: Callable[[Replica], bool]
    failed_attempts: Callable[[Replica], tuple[str, ...]]
    one_object_per_role: bool = False


class OwnedObjects(msgspec.Struct, frozen=True):
    """The children of one job, verified by owner reference."""

    by_ref: Mapping[Ref, Child]
    pods_by_owner: Mapping[str, tuple[Child, ...]]  # by the uid in their controller owner reference
    # pods whose Job or StatefulSet is gone, and pods of a Deployment's ReplicaSet
    pods_without_owner: tuple[Child, ...] = ()

    @classmethod
    def of(cls, uid: str, children: tuple[Child, ...]) -> OwnedObjects:
        by_ref = {child.ref: child for child in children if child.owner_uid == uid}
        uids = {child.uid for child in by_ref.values()} | {uid}
        pods_by_owner: dict[str, list[Child]] = {}
        orphans = []
        for child in children:
            if child.kind == "Pod" and child.owner_uid in uids:
                pods_by_owner.setdefault(child.owner_uid, []).append(child)
            elif child.kind == "Pod" and child.job_uid == uid:
                orphans.append(child)
        return cls(by_ref, {owner: tuple(pods) for owner, pods in pods_by_owner.items()}, tuple(orphans))


class AuxiliaryObject(msgspec.Struct, frozen=True):
    """An object beside the replicas. `body()` renders it without its name, owner reference and common labels.

    With a `digest` it is patched when the part of the spec that it is rendered from changes. `depends_on`: the children
    that it refers to by name; it is created after these exist and are owned by the job, and not patched while one is
    still to be created.
    """

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs_pods: bool = False  # so it is deleted while the job is suspended
    create_after_replicas: bool = False
    digest: str = ""
    depends_on: tuple[Ref, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class ConditionUpdate(NamedTuple):
    """Reason and message of a condition that holds."""

    type: str
    reason: str
    message: str


class Messages(msgspec.Struct, frozen=True):
    """A kind's texts for conditions and events. Where the old operators have a text, it is the same (S7).

    `condition_message(job, update, replicas)` returns the update with the kind's reason and message.
    `condition_event(job, update)` returns the event for a condition that became True; unset: default_condition_event.
    `write_events(job, write_or_replica)` returns the events for one create or delete, or for one replica that has a
    newly counted failure.
    """

    source: str = "trainyard-operator"  # source.component of the events
    condition_message: Callable[[Job, ConditionUpdate, Sequence[Replica]], ConditionUpdate] = (
        lambda job, update, replicas: update
    )
    condition_event: Callable[[Job, ConditionUpdate], Event | None] | None = None
    write_events: Callable[[Job, Create | Delete | Replica], tuple[Event, ...]] = lambda job, write_or_replica: ()
    # condition type -> its type in the old operators' documents, which is written in addition
    condition_aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    extra_timestamps: tuple[str, ...] = ()  # further time fields of a condition in the old operators' documents


class Kind(msgspec.Struct, frozen=True):
    """A kind of job, as a value. kinds/tfjob.py is an example.

    read(spec, name) parses, defaults and validates a spec. carrier(role): the type of object that runs the role's
    slots. child_name(job, slot) and child_labels(job, slot): name and labels of that object.
    mutate_pod_template(template, job, slot) returns the pod template with all that the framework needs; no other code
    depends on the framework. success_slots(job): the slots that must succeed for the job to succeed.
    supervised_slots(job): the slots whose exit codes the operator itself evaluates, for a retry or the job's failure;
    unset: those of success_slots. exit_fails_job(job, code, reason): True when an exit is not retryable.
    auxiliary_objects(job): the objects beside the replicas. render_status(job, outcome, counts): the status fields in
    the kind's own shape; counts is {role: {replica state: number of replicas}} in spec order. legacy_outcome(status):
    Succeeded, Failed or "", read from a status without conditions that an older operator wrote.

    on_template_change(role): the effect of an edit of a started role: "" it is ignored (S11), "later" it applies to
    replicas created afterwards, "again" it restarts the role's replicas. dependencies(job, slot): the children that
    must exist and be owned by the job before the slot's object is created, because its pods refer to them by name.
    restart_scope: what restarts after a retryable exit: the "role", all roles (the "gang"), or the "slot" alone; the
    back-off of a slot that restarts alone counts from its start, not from its end.
    """

    gvk: GVK
    singular: str
    short_names: tuple[str, ...]
    spec_type: type
    container: str
    carrier: Callable[[str], WorkloadAdapter]
    child_resources: tuple[GVK, ...]
    read: Callable[[Json, str], ParsedSpec]
    child_name: Callable[[Job, Slot], str]
    child_labels: Callable[[Job, Slot], dict[str, str]]
    mutate_pod_template: Callable[[Json, Job, Slot], Json]
    success_slots: Callable[[Job], frozenset[Slot]]
    exit_fails_job: Callable[[Job, int, str], bool]
    render_status: Callable[[Job, Outcome, Mapping[str, Mapping[str, int]]], Json]
    supervised_slots: Callable[[Job], frozenset[Slot]] | None = None
    subdomain: Callable[[Job], str] = lambda job: ""  # the headless Service for the DNS names of the pods; "": none
    child_metadata: Callable[[Job, Slot], Json] = lambda job, slot: {}  # further metadata of a slot's object
    job_spec_fields: Callable[[Job, Slot], Json] = (
        lambda job, slot: {}
    )  # spec fields of a batch Job that retries by itself
    auxiliary_objects: Callable[[Job], tuple[AuxiliaryObject, ...]] = lambda job: ()
    dependencies: Callable[[Job, Slot], tuple[Ref, ...]] = lambda job, slot: job.blocking_objects()
    on_template_change: Callable[[str], str] = lambda role: ""
    warnings: Callable[[Job], tuple[Problem, ...]] = lambda job: ()  # of an accepted spec: probable mistakes
    restart_scope: str = "role"
    default_backoff_limit: int | None = 6  # for the supervised roles of a job without backoffLimit; None: no limit
    messages: Messages = msgspec.field(default_factory=Messages)
    rules: tuple[Rule, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # further API groups that serve the kind
    scale: Mapping[str, str] = msgspec.field(default_factory=dict)  # the CRD's scale subresource
    # second accepted name -> name, of fields directly under spec
    field_aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    legacy_outcome: Callable[[Json], str] = lambda status: ""
    has_runtime_id: bool = False  # the spec has a RuntimeId, which is part of the children's names

    def success_slots_of(self, job: Job) -> frozenset[Slot]:
        slots: frozenset[Slot] = job.cached("deciding", lambda: self.success_slots(job))
        return slots

    def supervised_slots_of(self, job: Job) -> frozenset[Slot]:
        slots: frozenset[Slot] = job.cached("judged", lambda: (self.supervised_slots or self.success_slots)(job))
        return slots

    def resource(self, kind: str) -> GVK:
        """The resource of children of this kind. Raises KeyError when the job has no such children."""
        for gvk in self.child_resources:
            if gvk.kind == kind:
                return gvk
        raise KeyError(kind)
