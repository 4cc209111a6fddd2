"""A parsed job, and the values that a kind is made of.

Rules for this file:
- Everything is frozen. A kind is data and a few pure functions; nothing in here looks at a clock.
- What differs between kinds is a field of `Kind`, `Role` or `Carrier`, never an `if` on the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trainyard.core.model import Child, Config, Create, Delete, Event, Patch, Ref, Slot
from trainyard.objects import GVK, Json, Key, Problem
from trainyard.objects.resources import SERVICE
from trainyard.objects.values import replace

if TYPE_CHECKING:
    from trainyard.core.rules import Rule


class Role(msgspec.Struct, frozen=True):
    """One replica type of a job."""

    name: str  # as on the wire: MASTER
    replicas: int
    port: int
    template: Json | None  # None: the user's template is not what the job was started with, so nothing is made from it
    digest: str = ""  # of everything that shapes the role, defaults filled in
    container: str = ""  # its exit code decides for a replica; "": the kind's default container

    def resized(self, replicas: int) -> Role:
        return replace(self, replicas=replicas)


class Policy(msgspec.Struct, frozen=True):
    """The optional policies; None and "" mean unset, which is the documented old behaviour."""

    clean: str = ""  # None, Running, All
    ttl: int | None = None
    deadline: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""


class ParsedSpec(msgspec.Struct, frozen=True):
    """A parsed and defaulted spec: the result of a kind's `read`."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # as it is stored in the end: the user's, with every default filled in
    problems: tuple[Problem, ...] = ()  # the old operators' first problem comes first
    unknown: tuple[str, ...] = ()  # paths of fields we do not know


class RoleStatus(msgspec.Struct, frozen=True):
    """One role in `status.roles`: its attempt, its counted failures, and what the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts counted so far, durable
    replicas: int = 0
    port: int = 0
    digest: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    """The parsed status. It and the children are the operator's only durable state of a job."""

    wire: Json
    conditions: tuple[Json, ...] = ()
    outcome: str = ""  # Succeeded or Failed once the job has ended; never reset
    started: bool = False  # children may exist
    suspended: bool = False
    ran: bool = False  # a replica has run since the job was started or resumed
    cause: str = ""  # the reason of a failure before the kind rewords it, e.g. BackoffLimitExceeded
    start_time: float | None = None
    completion_time: float | None = None
    resumes: int = 0
    counted_failures: tuple[str, ...] = ()
    runtime_id: str = ""
    roles: Mapping[str, RoleStatus] = msgspec.field(default_factory=dict)

    def role(self, name: str) -> RoleStatus:
        return self.roles.get(name) or RoleStatus()


@dataclass(frozen=True, slots=True)
class Job:
    """One parsed job: the API object (`wire`), its spec (`wanted`) and its status (`memory`)."""

    kind: Kind
    wire: Json
    key: Key
    uid: str
    runtime_id: str
    parsed: ParsedSpec
    status: JobStatus
    roles: tuple[Role, ...]  # what holds now: the spec's, or what the job was started with
    config: Config
    owned: frozenset[Ref] | None = None  # the observed children that this job owns; None: not known, assume all
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def cached(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of `work`, computed once: a Job is immutable and may have ten thousand slots."""
        if name not in self.cache:
            self.cache[name] = work()
        return self.cache[name]

    @property
    def auxiliary_objects(self) -> Mapping[Ref, AuxiliaryObject]:
        """What the job has beside its replicas, in the order in which it is made."""
        found: Mapping[Ref, AuxiliaryObject] = self.cached(
            "extras", lambda: {extra.ref: extra for extra in self.kind.auxiliary_objects(self)}
        )
        return found

    @property
    def policy(self) -> Policy:
        return self.parsed.policy

    def blocking_objects(self) -> tuple[Ref, ...]:
        """The extras that replicas need, except Services: one that somebody else owns blocks no replica (S8)."""
        refs: tuple[Ref, ...] = self.cached(
            "early",
            lambda: tuple(
                ref
                for ref, extra in self.auxiliary_objects.items()
                if not extra.create_after_replicas and extra.gvk != SERVICE
            ),
        )
        return refs

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    def carrier(self, role: str) -> Carrier:
        return self.kind.carrier(role)

    def slots(self) -> list[Slot]:
        """One for each replica, or one for a whole role where one object carries all of it."""
        return [
            Slot(role.name, index)
            for role in self.roles
            for index in range(min(role.replicas, 1) if self.carrier(role.name).one_object_per_role else role.replicas)
        ]

    def restarts_gang(self) -> bool:
        """True for a gang: a retry of one replica restarts all of them, succeeded ones too (S33)."""
        return self.kind.restart_scope == "gang"


class Termination(msgspec.Struct, frozen=True):
    """How an attempt of a slot ended without success."""

    uid: str  # what is counted: the pod, or the Job object where one object is one attempt
    ended: float
    started: float
    code: int  # -1: not known
    reason: str
    container: str
    disrupted: bool  # the machine's affairs: replaced, never counted
    fails_job: bool  # never tried again
    not_before: float = 0.0  # ignored before this time: the watch event of its pod may still arrive
    job_reason: str = "PermanentFailure"  # the reason of the job's failure, if permanent
    message: str = ""  # what the container, or its own controller, said last
    pod_is_gone: bool = False  # so container and exit code are not known, and there are no logs


NO_POD = "has no pod yet"
"""Why a replica does not run: the controller of its object has not created the pod yet."""


class Replica(NamedTuple):
    """One slot, observed."""

    slot: Slot
    child: Child | None  # the object that has its name, even of an older attempt or in Terminating
    state: str  # Unknown, Starting, Running, Succeeded, Failed
    termination: Termination | None = None
    failed_attempts: tuple[str, ...] = ()  # uids of failed attempts that are visible
    restarts: int = 0  # in place, by the node
    message: str = ""  # why it does not run
    pods_ended: bool = False  # none of its pods runs or will run, even if its controller's status lags
    last_crash: str = ""  # what the last restart in place was for
    running: int = 1  # pods that run, where one object carries a whole role
    failed_pods: int = 0  # status.failed of a Job that retries by itself

    @property
    def name(self) -> str:
        """For messages: "WORKER 0"."""
        return f"{self.slot.role} {self.slot.index}"


class Outcome(msgspec.Struct, frozen=True):
    """One word about the job: Created, Starting (again), Running, Suspended, Succeeded, Failed, Invalid; and why."""

    phase: str
    reason: str = ""
    message: str = ""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Invalid")


class Carrier(msgspec.Struct, frozen=True):
    """The object that runs a slot (batch Job, Pod or StatefulSet), as six functions. No other code asks which it is.

    observe(job, slot, family): the observed state of the slot. render(job, slot, attempt): the object without name,
    owner and common labels. stop(replica, reason): the write that stops its pods, None when none is needed.
    resume(job, replica): the patch that scales it to the wanted size, None when none is needed. ended(replica): none of
    its pods runs; their logs stay. failures(replica): uids of failed attempts, each counted once. `whole`: one object
    runs a whole role.
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
    pods_by_owner: Mapping[str, tuple[Child, ...]]  # by the uid of what owns them
    pods_without_owner: tuple[
        Child, ...
    ] = ()  # pods whose Job or StatefulSet has gone, and those of a Deployment's ReplicaSet

    @classmethod
    def of(cls, uid: str, children: tuple[Child, ...]) -> OwnedObjects:
        own = {child.ref: child for child in children if child.owner == uid}
        uids = {child.uid for child in own.values()} | {uid}
        pods: dict[str, list[Child]] = {}
        orphans = []
        for child in children:
            if child.kind == "Pod" and child.owner in uids:
                pods.setdefault(child.owner, []).append(child)
            elif child.kind == "Pod" and child.job == uid:
                orphans.append(child)
        return cls(own, {owner: tuple(them) for owner, them in pods.items()}, tuple(orphans))


class AuxiliaryObject(msgspec.Struct, frozen=True):
    """An object beside the replicas. `body` renders it without what every child gets (name, owner, common labels).

    With a `digest` it is patched when the spec that it is rendered from changes. `needs`: the children that it refers
    to by name; it is created after these exist as the job's own, and not patched while one is still to be created.
    """

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs_pods: bool = False  # it runs pods: deleted while the job is suspended
    create_after_replicas: bool = False  # made after the replicas
    digest: str = ""
    depends_on: tuple[Ref, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class ConditionUpdate(NamedTuple):
    """A condition that holds, in words."""

    type: str
    reason: str
    message: str


class Messages(msgspec.Struct, frozen=True):
    """A kind's texts for conditions and events; the old operators' exact texts come first (S7).

    `word(job, said, replicas)` returns a condition with the kind's reason and message. `announce(job, said)` returns
    the event for a condition that became True, `tell(job, fact)` the events for one write or one failed replica.
    """

    source: str = "trainyard-operator"  # the component that events come from
    condition_message: Callable[[Job, ConditionUpdate, Sequence[Replica]], ConditionUpdate] = (
        lambda job, said, replicas: said
    )
    condition_event: Callable[[Job, ConditionUpdate], Event | None] | None = None
    write_events: Callable[[Job, Create | Delete | Replica], tuple[Event, ...]] = lambda job, fact: ()
    condition_aliases: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # condition -> the name it has in the documents, written too
    extra_timestamps: tuple[str, ...] = ()  # further time fields of a condition that the documents have


class Kind(msgspec.Struct, frozen=True):
    """A kind of job, as a value. See kinds/tfjob.py for the first one.

    read(spec, name) parses, defaults and validates a spec. carrier(role) runs the role's slots. child_name and
    child_labels are those of a slot's object. dress(template, job, slot) returns the pod template with what the
    framework needs (the only place that names a framework). decides(job): the slots that must succeed for the job to
    succeed. judges(job): the slots whose ends the operator judges itself; unset: those of decides. permanent(job, code,
    reason): whether an exit is not retryable. extras(job): the objects beside the replicas. report(job, verdict,
    tally): the status fields in the kind's own shape; tally is {role: {replica state: count}} in spec order.
    old_end(status): Succeeded or Failed, read from a status without conditions that an older operator wrote.

    follows(role): what an edit of a started role does: "" is ignored (S11), "later" applies to replicas created
    afterwards, "again" restarts its replicas. needs(job, slot): the children that must exist as the job's own before
    the slot's object is created, because its pods refer to them by name. `restarts`: the restart scope after a
    retryable end: the "role", the whole "gang", or the "slot" alone, whose pause counts from its start, not its end.
    """

    gvk: GVK
    singular: str
    short_names: tuple[str, ...]
    spec_type: type
    container: str
    carrier: Callable[[str], Carrier]
    child_resources: tuple[GVK, ...]  # of which resources its children are
    read: Callable[[Json, str], ParsedSpec]
    child_name: Callable[[Job, Slot], str]
    child_labels: Callable[[Job, Slot], dict[str, str]]
    mutate_pod_template: Callable[[Json, Job, Slot], Json]
    success_slots: Callable[[Job], frozenset[Slot]]
    exit_fails_job: Callable[[Job, int, str], bool]
    render_status: Callable[[Job, Outcome, Mapping[str, Mapping[str, int]]], Json]
    supervised_slots: Callable[[Job], frozenset[Slot]] | None = None
    subdomain: Callable[[Job], str] = lambda job: ""  # the headless Service that names the replicas, where one does
    child_metadata: Callable[[Job, Slot], Json] = (
        lambda job, slot: {}
    )  # what else the metadata of a slot's object holds
    job_limits: Callable[[Job, Slot], Json] = lambda job, slot: {}  # of a Job that tries again by itself
    auxiliary_objects: Callable[[Job], tuple[AuxiliaryObject, ...]] = lambda job: ()
    dependencies: Callable[[Job, Slot], tuple[Ref, ...]] = lambda job, slot: job.blocking_objects()
    on_template_change: Callable[[str], str] = lambda role: ""
    warnings: Callable[[Job], tuple[Problem, ...]] = lambda job: ()  # accepted, and probably not meant
    restart_scope: str = "role"
    default_backoff_limit: int | None = (
        6  # backoffLimit of those who are judged, where the job sets none; None: without end
    )
    messages: Messages = msgspec.field(default_factory=Messages)
    rules: tuple[Rule, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # other API groups under which the same is served
    scale: Mapping[str, str] = msgspec.field(default_factory=dict)  # the CRD's scale subresource
    field_aliases: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # other accepted name -> name, directly under spec
    legacy_outcome: Callable[[Json], str] = lambda status: ""
    has_runtime_id: bool = False  # the spec holds a RuntimeId that names the children

    def success_slots_of(self, job: Job) -> frozenset[Slot]:
        found: frozenset[Slot] = job.cached("deciding", lambda: self.success_slots(job))
        return found

    def supervised_slots_of(self, job: Job) -> frozenset[Slot]:
        found: frozenset[Slot] = job.cached("judged", lambda: (self.supervised_slots or self.success_slots)(job))
        return found

    def resource(self, kind: str) -> GVK:
        """The resource of a child's kind. Raises KeyError when no child is of that kind."""
        for gvk in self.child_resources:
            if gvk.kind == kind:
                return gvk
        raise KeyError(kind)
