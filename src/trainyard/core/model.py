"""The values that cross the decision's door: what is asked (`Job`, `Seen`) and what is answered (`Plan`).

Rules for this file:
- Everything is frozen. Wire objects inside (templates, specs, statuses) are dicts that nobody edits in place.
- Times are seconds since 1970 in UTC. Names are the API's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trainyard.objects import GVK, Json, Key, Problem

if TYPE_CHECKING:
    from trainyard.core.rules import Rule

JOB = GVK("batch", "v1", "Job", "jobs")
POD = GVK("", "v1", "Pod", "pods")
SERVICE = GVK("", "v1", "Service", "services")
CONFIG_MAP = GVK("", "v1", "ConfigMap", "configmaps")
DEPLOYMENT = GVK("apps", "v1", "Deployment", "deployments")
CHILDREN = (JOB, POD, SERVICE, CONFIG_MAP, DEPLOYMENT)
"""Every resource a job's children can be of: one watch each."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place that a child can fill."""

    role: str
    index: int


class Ref(NamedTuple):
    """A child by kind and name; the namespace is the job's."""

    kind: str
    name: str


class Child(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What we remember of one observed child. Flat on purpose: about 0.3 KiB each, invisible to the garbage collector.

    `job` is the OWNER label (the job's uid), `owner` the uid of the controller owner: the job itself, or for a pod of
    a batch Job that Job. Fields below a comment with kinds mean something only for these.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    revision: str = ""
    job: str = ""
    owner: str = ""
    role: str = ""
    index: int = -1
    attempt: int = 0
    deleting: bool = False
    created: float = 0.0
    # batch Job, Pod
    phase: str = ""  # Pod: status.phase. Job: "", "Complete", "Failed"
    reason: str = ""
    message: str = ""
    started: float = 0.0
    ended: float = 0.0  # when the last container ended, or the pod's or Job's last transition
    # Pod
    disrupted: bool = False  # condition DisruptionTarget, or a reason that names one
    containers: str = ""  # one line a container, see children.py: "name|state|code|reason|restarts|init"

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server answered to one of our creates: a foreign object, a quota, an invalid template.

    Kept by the shell in memory; losing it costs one more try. `tries` counts the refusals in a row, for the back-off.
    """

    code: int
    reason: str
    message: str
    at: float
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Config:
    """The administrator's configuration and the files we ship, read by `app`."""

    accelerators: Mapping[str, Json] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # shipped program texts, by file name
    cluster_domain: str = "cluster.local"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the shell sees of one job when it asks."""

    children: tuple[Child, ...] = ()
    ids_in_use: frozenset[str] = frozenset()  # RuntimeIds of the other jobs of the namespace
    refused: Mapping[Ref, Refusal] = field(default_factory=dict)
    config: Config = field(default_factory=Config)


class Delete(NamedTuple):
    """Delete this child, and only this one: the uid is a precondition. Propagation is always Background."""

    gvk: GVK
    name: str
    uid: str
    reason: str


class Patch(NamedTuple):
    """A merge patch of an existing object; `subresource` "" is the object itself."""

    gvk: GVK
    name: str
    subresource: str
    body: Json


class Create(NamedTuple):
    """A child to make. What it looks like is worked out by `render` when it is sent, so a plan stays cheap."""

    gvk: GVK
    name: str
    slot: Slot | None  # None: an extra (Service, ConfigMap, TensorBoard), found by its name
    attempt: int = 0

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Event(NamedTuple):
    """Something for people, said after the writes succeeded. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be written, in the order in which it is written.

    A `spec_patch` goes alone: the shell sends it, ends the pass, and the next pass decides the rest again.
    Then the status (if anything at all is to be written: it is the fence), deletes, patches, creates, events.
    """

    status: Json
    status_changed: bool = False
    spec_patch: Json | None = None
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    creates: tuple[Create, ...] = ()
    events: tuple[Event, ...] = ()
    after: float | None = None  # look again then, even if nothing happens
    urgent: bool = False  # more than counts changed

    @property
    def writes_world(self) -> bool:
        """True when something besides status and events is to be written."""
        return bool(self.deletes or self.patches or self.creates)

    @property
    def idle(self) -> bool:
        return not (self.status_changed or self.spec_patch or self.writes_world)


@dataclass(frozen=True, slots=True)
class Role:
    """One replica type of a job."""

    name: str  # as on the wire: MASTER
    replicas: int
    port: int
    template: Json | None  # None: the user's template is not what the job was started with, so nothing is made from it
    digest: str = ""  # of everything that shapes the role, defaults filled in


@dataclass(frozen=True, slots=True)
class Policy:
    """The optional policies; None and "" mean unset, which is the documented old behaviour."""

    clean: str = ""  # None, Running, All
    ttl: int | None = None
    deadline: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A spec, understood: what a kind's `read` makes of it."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # as it is stored in the end: the user's, with every default filled in
    problems: tuple[Problem, ...] = ()  # the old operators' first problem comes first
    unknown: tuple[str, ...] = ()  # paths of fields we do not know


@dataclass(frozen=True, slots=True)
class RoleMemory:
    """What status remembers of one role: how often its slots were made again, and what the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts counted so far, durable
    replicas: int = 0
    port: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
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
    roles: Mapping[str, RoleMemory] = field(default_factory=dict)

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

    @property
    def policy(self) -> Policy:
        return self.wanted.policy

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    def slots(self) -> list[Slot]:
        return [Slot(role.name, index) for role in self.roles for index in range(role.replicas)]


@dataclass(frozen=True, slots=True)
class End:
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """One word about the job: Created, Running, Suspended, Succeeded, Failed, Invalid; and why."""

    stage: str
    reason: str = ""
    message: str = ""

    @property
    def over(self) -> bool:
        return self.stage in ("Succeeded", "Failed", "Invalid")


@dataclass(frozen=True, slots=True)
class Carrier:
    """What fills a slot, as six functions. Nothing outside a carrier asks which one it is.

    observe(job, slot, family): the slot as it is. render(job, slot, attempt): the whole object but for name and owner.
    stop(replica): the write after which nothing of it runs, None when nothing does. resume(replica): the write that
    wakes a stopped one, None when a missing one is simply made. ended(replica): done for good, its logs stay.
    failures(replica): uids of failed attempts, each counted once.
    """

    gvk: GVK
    observe: Callable[[Job, Slot, Family], Replica]
    render: Callable[[Job, Slot, int], Json]
    stop: Callable[[Replica, str], Delete | Patch | None]
    resume: Callable[[Replica], Patch | None]
    ended: Callable[[Replica], bool]
    failures: Callable[[Replica], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Family:
    """The children of one job, verified by owner reference."""

    by_ref: Mapping[Ref, Child]
    pods: Mapping[str, tuple[Child, ...]]  # by the uid of what owns them

    @classmethod
    def of(cls, uid: str, children: tuple[Child, ...]) -> Family:
        own = {child.ref: child for child in children if child.owner == uid}
        uids = {child.uid for child in own.values()} | {uid}
        pods: dict[str, list[Child]] = {}
        for child in children:
            if child.kind == "Pod" and child.owner in uids:
                pods.setdefault(child.owner, []).append(child)
        return cls(own, {owner: tuple(them) for owner, them in pods.items()})


@dataclass(frozen=True, slots=True)
class Extra:
    """An object beside the replicas. `body` renders it whole but for what every child gets (name, owner, labels)."""

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs: bool = False  # it keeps pods running: not while suspended
    late: bool = False  # made after the replicas


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job, as a value. See kinds/tfjob.py for the first one.

    read(spec, name) understands a spec; child_name and child_labels name a slot's object; dress(template, job, slot)
    adds what the framework needs to a pod template and returns a new one (the only place that names a framework);
    decides(job) are the slots whose end ends the job; permanent(code, reason) says whether an exit is never tried
    again; extras(job) lists what else the job has; report(job, verdict, tally) gives the status fields of the kind's
    own shape, where tally is {role: {replica state: count}} in the order of the spec. old_end(status) is the end,
    Succeeded or Failed, that a status without conditions tells: an operator before us has written it.
    """

    gvk: GVK
    singular: str
    short_names: tuple[str, ...]
    spec_type: type
    container: str
    carrier: Carrier
    read: Callable[[Json, str], Wanted]
    subdomain: Callable[[Job], str]
    child_name: Callable[[Job, Slot], str]
    child_labels: Callable[[Job, Slot], dict[str, str]]
    dress: Callable[[Json, Job, Slot], Json]
    decides: Callable[[Job], frozenset[Slot]]
    permanent: Callable[[int, str], bool]
    report: Callable[[Job, Verdict, Mapping[str, Mapping[str, int]]], Json]
    extras: Callable[[Job], tuple[Extra, ...]] = lambda job: ()
    rules: tuple[Rule, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)  # other accepted name -> name, directly under spec
    old_end: Callable[[Json], str] = lambda status: ""
    runtime_id: bool = False  # the spec holds a RuntimeId that names the children
