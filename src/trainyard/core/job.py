"""A job, read, and the values that a kind is made of.

Rules for this file:
- Everything is frozen. A kind is data and a few pure functions; nothing in here looks at a clock.
- What differs between kinds is a field of `Kind`, `Role` or `Carrier`, never a question "which kind is it?".
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
    container: str = ""  # whose exit code speaks for a replica; "" is the kind's own

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
    """A spec, understood: what a kind's `read` makes of it."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # as it is stored in the end: the user's, with every default filled in
    problems: tuple[Problem, ...] = ()  # the old operators' first problem comes first
    unknown: tuple[str, ...] = ()  # paths of fields we do not know


class RoleMemory(msgspec.Struct, frozen=True):
    """What status remembers of one role: how often its slots were made again, and what the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts counted so far, durable
    replicas: int = 0
    port: int = 0
    digest: str = ""


class Memory(msgspec.Struct, frozen=True):
    """What the stored status says. All the operator remembers of a job is in here (and in the children)."""

    wire: Json
    conditions: tuple[Json, ...] = ()
    end: str = ""  # Succeeded, Failed: an ending is never taken back
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
    """One job, read: the wire object, what its spec wants and what its status remembers."""

    kind: Kind
    wire: Json
    key: Key
    uid: str
    runtime_id: str
    wanted: Wanted
    memory: Memory
    roles: tuple[Role, ...]  # what holds now: the spec's, or what the job was started with
    config: Config
    owned: frozenset[Ref] | None = None  # the children seen with our owner uid; None where nobody asks: all of them
    known: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """What was worked out for this value before: it never changes, and a job may have ten thousand slots."""
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
        """The extras that pods mount or run as, by name. A Service that is somebody else's stops nobody (S8)."""
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
        """A lost replica is not taken back by the others: all are made again, those that ended well too (S33)."""
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
    believed: float = 0.0  # not before this time: the evidence may still be on its way
    verdict: str = "PermanentFailure"  # the reason of the job's end, where this is permanent
    message: str = ""  # what the container, or its own controller, said last
    pod_is_gone: bool = False  # nothing tells a container and its code, and there are no logs


NO_POD = "has no pod yet"
"""Why a replica does not run whose pod Kubernetes is to make."""


class Replica(NamedTuple):
    """One slot, observed."""

    slot: Slot
    child: Child | None  # what carries it; it may be of an older attempt or on its way out, it still holds the name
    state: str  # Unknown, Starting, Running, Succeeded, Failed
    end: End | None = None
    failed: tuple[str, ...] = ()  # uids of failed attempts that are visible
    restarts: int = 0  # in place, by the node
    why: str = ""  # why it does not run
    ended: bool = False  # nothing of it runs and nothing will, whether or not its own controller has said so yet
    crash: str = ""  # what the last restart in place was for
    running: int = 1  # pods that run, where one object carries a whole role
    failed_pods: int = 0  # that its own controller has counted, where it tries again by itself


class Verdict(msgspec.Struct, frozen=True):
    """One word about the job: Created, Starting (again), Running, Suspended, Succeeded, Failed, Invalid; and why."""

    stage: str
    reason: str = ""
    message: str = ""

    @property
    def over(self) -> bool:
        return self.stage in ("Succeeded", "Failed", "Invalid")


class Carrier(msgspec.Struct, frozen=True):
    """What fills a slot, as six functions. Nothing outside a carrier asks which one it is.

    observe(job, slot, family): the slot as it is. render(job, slot, attempt): the whole object but for name and owner.
    stop(replica): the write after which nothing of it runs, None when nothing does. resume(job, replica): the write
    that brings an object to the size the job wants, None when it has it. ended(replica): nothing of it runs, its logs
    stay. failures(replica): uids of failed attempts, each counted once. `whole`: one object carries a whole role.
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
    """An object beside the replicas. `body` renders it whole but for what every child gets (name, owner, labels).

    With a `digest` it follows the spec: an object that was made from another one is patched. `needs` are the children
    that it names: it is made, and follows, when these are there as ours.
    """

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs: bool = False  # it keeps pods running: not while suspended
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
    """How a kind words what every kind has to say: the old operators' exact texts come first (S7).

    `word(job, said, replicas)` gives a condition's reason and message. `announce(job, said)` is the event when a
    condition has become True. `tell(job, fact)` are events about one write, or about a replica that failed.
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

    read(spec, name) understands a spec; carrier(role) is what fills the role's slots; child_name and child_labels name
    a slot's object; dress(template, job, slot) adds what the framework needs to a pod template and returns a new one
    (the only place that names a framework); decides(job) are the slots whose success ends the job; judges(job) are
    those whose every end is judged here, none: those that decide; permanent(job, code, reason) says whether an exit is
    never tried again; extras(job) lists what else the job has; report(job, verdict, tally) gives the status fields of
    the kind's own shape, where tally is {role: {replica state: count}} in the order of the spec. old_end(status) is
    the end, Succeeded or Failed, that a status without conditions tells: an operator before us has written it.

    follows(role) says what an edit of a started role does: "" is ignored (S11), "later" holds for replicas made from
    now on, "again" makes its replicas again. needs(job, slot) are the children that must be there as ours before the
    slot is filled, because its pods use them by name. `restarts` is what is made again after a retryable end: its
    "role", the whole "gang", or the "slot" alone, which then waits from its start and not from its end.
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
