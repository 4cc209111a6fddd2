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

from trainyard.core.model import SERVICE, Child, Config, Create, Delete, Event, Patch, Ref, Slot
from trainyard.objects import GVK, Json, Key, Problem
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


class Wanted(msgspec.Struct, frozen=True):
    """A parsed and defaulted spec: the result of a kind's `read`."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # as it is stored in the end: the user's, with every default filled in
    problems: tuple[Problem, ...] = ()  # the old operators' first problem comes first
    unknown: tuple[str, ...] = ()  # paths of fields we do not know


class RoleMemory(msgspec.Struct, frozen=True):
    """One role in `status.roles`: its attempt, its counted failures, and what the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts counted so far, durable
    replicas: int = 0
    port: int = 0
    digest: str = ""


class Memory(msgspec.Struct, frozen=True):
    """The parsed status. It and the children are the operator's only durable state of a job."""

    wire: Json
    conditions: tuple[Json, ...] = ()
    end: str = ""  # Succeeded or Failed once the job has ended; never reset
    started: bool = False  # children may exist
    suspended: bool = False
    ran: bool = False  # a replica has run since the job was started or resumed
    start: float | None = None
    completion: float | None = None
    resumes: int = 0
    counted: tuple[str, ...] = ()
    runtime_id: str = ""
    roles: Mapping[str, RoleMemory] = msgspec.field(default_factory=dict)

    def role(self, name: str) -> RoleMemory:
        return self.roles.get(name) or RoleMemory()


@dataclass(frozen=True, slots=True)
class Job:
    """One parsed job: the API object (`wire`), its spec (`wanted`) and its status (`memory`)."""

    kind: Kind
    wire: Json
    key: Key
    uid: str
    runtime_id: str
    wanted: Wanted
    memory: Memory
    roles: tuple[Role, ...]  # what holds now: the spec's, or what the job was started with
    config: Config
    owned: frozenset[Ref] | None = None  # the observed children that this job owns; None: not known, assume all
    known: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of `work`, computed once: a Job is immutable and may have ten thousand slots."""
        if name not in self.known:
            self.known[name] = work()
        return self.known[name]

    @property
    def extras(self) -> Mapping[Ref, Extra]:
        """What the job has beside its replicas, in the order in which it is made."""
        found: Mapping[Ref, Extra] = self.once("extras", lambda: {extra.ref: extra for extra in self.kind.extras(self)})
        return found

    @property
    def policy(self) -> Policy:
        return self.wanted.policy

    def early(self) -> tuple[Ref, ...]:
        """The extras that replicas need, except Services: one that somebody else owns blocks no replica (S8)."""
        refs: tuple[Ref, ...] = self.once(
            "early", lambda: tuple(ref for ref, extra in self.extras.items() if not extra.late and extra.gvk != SERVICE)
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
            for index in range(min(role.replicas, 1) if self.carrier(role.name).whole else role.replicas)
        ]

    def whole_again(self) -> bool:
        """True for a gang: a retry of one replica restarts all of them, succeeded ones too (S33)."""
        return self.kind.restarts == "gang"


class End(msgspec.Struct, frozen=True):
    """How an attempt of a slot ended without success."""

    uid: str  # what is counted: the pod, or the Job object where one object is one attempt
    at: float
    began: float
    code: int  # -1: not known
    reason: str
    container: str
    disrupted: bool  # the machine's affairs: replaced, never counted
    permanent: bool  # never tried again
    believed: float = 0.0  # ignored before this time: the watch event of its pod may still arrive
    verdict: str = "PermanentFailure"  # the reason of the job's failure, if permanent
    message: str = ""  # what the container, or its own controller, said last
    pod_is_gone: bool = False  # so container and exit code are not known, and there are no logs


NO_POD = "has no pod yet"
"""Why a replica does not run: the controller of its object has not created the pod yet."""


class Replica(NamedTuple):
    """One slot, observed."""

    slot: Slot
    child: Child | None  # the object that has its name, even of an older attempt or in Terminating
    state: str  # Unknown, Starting, Running, Succeeded, Failed
    end: End | None = None
    failed: tuple[str, ...] = ()  # uids of failed attempts that are visible
    restarts: int = 0  # in place, by the node
    why: str = ""  # why it does not run
    ended: bool = False  # none of its pods runs or will run, even if its controller's status lags
    crash: str = ""  # what the last restart in place was for
    running: int = 1  # pods that run, where one object carries a whole role
    failed_pods: int = 0  # status.failed of a Job that retries by itself


class Verdict(msgspec.Struct, frozen=True):
    """One word about the job: Created, Starting (again), Running, Suspended, Succeeded, Failed, Invalid; and why."""

    stage: str
    reason: str = ""
    message: str = ""

    @property
    def over(self) -> bool:
        return self.stage in ("Succeeded", "Failed", "Invalid")


class Carrier(msgspec.Struct, frozen=True):
    """The object that runs a slot (batch Job, Pod or StatefulSet), as six functions. No other code asks which it is.

    observe(job, slot, family): the observed state of the slot. render(job, slot, attempt): the object without name,
    owner and common labels. stop(replica, reason): the write that stops its pods, None when none is needed.
    resume(job, replica): the patch that scales it to the wanted size, None when none is needed. ended(replica): none of
    its pods runs; their logs stay. failures(replica): uids of failed attempts, each counted once. `whole`: one object
    runs a whole role.
    """

    gvk: GVK
    observe: Callable[[Job, Slot, Family], Replica]
    render: Callable[[Job, Slot, int], Json]
    stop: Callable[[Replica, str], Delete | Patch | None]
    resume: Callable[[Job, Replica], Patch | None]
    ended: Callable[[Replica], bool]
    failures: Callable[[Replica], tuple[str, ...]]
    whole: bool = False


class Family(msgspec.Struct, frozen=True):
    """The children of one job, verified by owner reference."""

    by_ref: Mapping[Ref, Child]
    pods: Mapping[str, tuple[Child, ...]]  # by the uid of what owns them
    orphans: tuple[Child, ...] = ()  # pods whose Job or StatefulSet has gone, and those of a Deployment's ReplicaSet

    @classmethod
    def of(cls, uid: str, children: tuple[Child, ...]) -> Family:
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


class Extra(msgspec.Struct, frozen=True):
    """An object beside the replicas. `body` renders it without what every child gets (name, owner, common labels).

    With a `digest` it is patched when the spec that it is rendered from changes. `needs`: the children that it refers
    to by name; it is created after these exist as the job's own, and not patched while one is still to be created.
    """

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs: bool = False  # it runs pods: deleted while the job is suspended
    late: bool = False  # made after the replicas
    digest: str = ""
    needs: tuple[Ref, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Said(NamedTuple):
    """A condition that holds, in words."""

    type: str
    reason: str
    message: str


class Speech(msgspec.Struct, frozen=True):
    """A kind's texts for conditions and events; the old operators' exact texts come first (S7).

    `word(job, said, replicas)` returns a condition with the kind's reason and message. `announce(job, said)` returns
    the event for a condition that became True, `tell(job, fact)` the events for one write or one failed replica.
    """

    source: str = "trainyard-operator"  # the component that events come from
    word: Callable[[Job, Said, Sequence[Replica]], Said] = lambda job, said, replicas: said
    announce: Callable[[Job, Said], Event | None] | None = None
    tell: Callable[[Job, Create | Delete | Replica], tuple[Event, ...]] = lambda job, fact: ()
    also: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # condition -> the name it has in the documents, written too
    times: tuple[str, ...] = ()  # further time fields of a condition that the documents have


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
    owns: tuple[GVK, ...]  # of which resources its children are
    read: Callable[[Json, str], Wanted]
    child_name: Callable[[Job, Slot], str]
    child_labels: Callable[[Job, Slot], dict[str, str]]
    dress: Callable[[Json, Job, Slot], Json]
    decides: Callable[[Job], frozenset[Slot]]
    permanent: Callable[[Job, int, str], bool]
    report: Callable[[Job, Verdict, Mapping[str, Mapping[str, int]]], Json]
    judges: Callable[[Job], frozenset[Slot]] | None = None
    subdomain: Callable[[Job], str] = lambda job: ""  # the headless Service that names the replicas, where one does
    child_meta: Callable[[Job, Slot], Json] = lambda job, slot: {}  # what else the metadata of a slot's object holds
    limits: Callable[[Job, Slot], Json] = lambda job, slot: {}  # of a Job that tries again by itself
    extras: Callable[[Job], tuple[Extra, ...]] = lambda job: ()
    needs: Callable[[Job, Slot], tuple[Ref, ...]] = lambda job, slot: job.early()
    follows: Callable[[str], str] = lambda role: ""
    warn: Callable[[Job], tuple[Problem, ...]] = lambda job: ()  # accepted, and probably not meant
    restarts: str = "role"
    retries: int | None = 6  # backoffLimit of those who are judged, where the job sets none; None: without end
    speech: Speech = msgspec.field(default_factory=Speech)
    rules: tuple[Rule, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # other API groups under which the same is served
    scale: Mapping[str, str] = msgspec.field(default_factory=dict)  # the CRD's scale subresource
    spellings: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # other accepted name -> name, directly under spec
    old_end: Callable[[Json], str] = lambda status: ""
    runtime_id: bool = False  # the spec holds a RuntimeId that names the children

    def deciding(self, job: Job) -> frozenset[Slot]:
        found: frozenset[Slot] = job.once("deciding", lambda: self.decides(job))
        return found

    def judged(self, job: Job) -> frozenset[Slot]:
        found: frozenset[Slot] = job.once("judged", lambda: (self.judges or self.decides)(job))
        return found

    def resource(self, kind: str) -> GVK:
        """The resource of a child's kind. Raises KeyError when no child is of that kind."""
        for gvk in self.owns:
            if gvk.kind == kind:
                return gvk
        raise KeyError(kind)
