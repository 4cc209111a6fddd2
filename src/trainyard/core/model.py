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
    from trainyard.core.carriers import Carrier
    from trainyard.core.rules import Rule

JOB = GVK("batch", "v1", "Job", "jobs")
POD = GVK("", "v1", "Pod", "pods")
SERVICE = GVK("", "v1", "Service", "services")
CONFIG_MAP = GVK("", "v1", "ConfigMap", "configmaps")
DEPLOYMENT = GVK("apps", "v1", "Deployment", "deployments")
CHILDREN = (JOB, POD, SERVICE, CONFIG_MAP, DEPLOYMENT)
"""Every resource a job's children can be of: one watch each."""


class Slot(NamedTuple):
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
    a batch Job that Job. Fields after `labels` mean something only for some kinds.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    revision: str = ""
    job: str = ""
    owner: str = ""
    owner_text: str = ""  # "Kind/name" of the controller owner, for messages
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
    ready: bool = False
    containers: str = ""  # one line a container, see children.py: "name|state|code|reason|restarts"

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
    digest: str = ""  # of the role as the user wrote it


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
    problems: tuple[Problem, ...] = ()
    texts: tuple[str, ...] = ()  # the old exact text for the first problem, where there is one
    unknown: tuple[str, ...] = ()  # paths of fields we do not know


@dataclass(frozen=True, slots=True)
class Job:
    """One job, read. The wire object is `wire`; its status as stored is `wire["status"]`."""

    kind: Kind
    wire: Json
    key: Key
    uid: str
    runtime_id: str
    wanted: Wanted
    roles: tuple[Role, ...]  # what holds now: the spec's, or what the job was started with
    config: Config

    @property
    def policy(self) -> Policy:
        return self.wanted.policy

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class Extra:
    """An object beside the replicas. `body` renders it whole but for what every child gets (owner, OWNER label)."""

    gvk: GVK
    name: str
    body: Callable[[], Json]
    runs: bool = False  # it keeps pods running: gone while suspended and under cleanPodPolicy All


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job, as a value. See kinds/tfjob.py for the first one.

    read(spec, runtime_id, name) understands a spec; dress(template, job, slot) adds what the framework needs to one
    pod template and returns a new one; extras(job) lists what else the job has; decides(job) names the slots whose end
    ends the job; report(job, observed, status) adds the status fields of the kind's own shape.
    """

    gvk: GVK
    singular: str
    short_names: tuple[str, ...]
    spec_type: type
    roles: tuple[str, ...]
    container: str
    carrier: Carrier
    read: Callable[[Json, str], Wanted]
    child_name: Callable[[Job, Slot], str]
    child_labels: Callable[[Job, Slot], dict[str, str]]
    dress: Callable[[Json, Job, Slot], Json]
    decides: Callable[[Job], frozenset[Slot]]
    report: Callable[..., Json]
    extras: Callable[[Job], tuple[Extra, ...]] = lambda job: ()
    rules: tuple[Rule, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()
    aliases: tuple[GVK, ...] = ()
    old_texts: Mapping[str, str] = field(default_factory=dict)
