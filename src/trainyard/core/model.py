"""Input and output of `decide`: the observed state (`Child`, `Seen`) and the writes (`Plan`).

Rules for this file:
- Everything is frozen. Wire objects inside (templates, specs, statuses) are dicts that nobody edits in place.
- Times are seconds since 1970 in UTC. Names are the API's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from trainyard.objects import GVK, Json


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One replica by role and index, or a whole role (index 0) that one object runs. One child fills it."""

    role: str
    index: int


class Ref(NamedTuple):
    """A child by kind and name; the namespace is the job's."""

    kind: str
    name: str


class Child(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One observed child as cached. Flat on purpose: about 0.3 KiB each, not tracked by Python's garbage collector.

    `job` is the OWNER label (the job's uid). `owner` is the uid in the controller ownerReference: the job's, or for a
    pod that of its batch Job, StatefulSet or ReplicaSet. A comment with kinds says which kinds set the fields below it.
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
    delete_deadline: float = 0.0  # metadata.deletionTimestamp: when the grace period ends
    created: float = 0.0
    # batch Job, Pod; of a Deployment its trouble: reason and message
    phase: str = ""  # Pod: status.phase. Job: "", "Complete", "Failed"
    reason: str = ""
    message: str = ""
    started: float = 0.0
    ended: float = 0.0  # when the last container ended, or the pod's or Job's last transition
    # Pod
    restarts_containers: bool = False  # its node starts a failed container again, so such an exit is no end
    always_restarts: bool = False  # and one that ended well, too
    disrupted: bool = False  # condition DisruptionTarget, or a reason that names one
    containers: str = ""  # one line a container, see children.py: "name|state|code|reason|restarts|init"
    # batch Job
    failed_pods: int = 0  # status.failed, which includes deleted pods
    # StatefulSet
    replicas: int = 0  # of its spec
    # extras that follow the spec
    digest: str = ""  # of what it was rendered from

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name)


class Refusal(msgspec.Struct, frozen=True):
    """A refused write: the name is taken, a quota is exceeded, the object is invalid, RBAC forbids it.

    Kept by the shell in memory; losing it costs one more request. `tries` counts refusals in a row, for the back-off.
    `verb` is what was refused: create, patch or delete.
    """

    code: int
    reason: str
    message: str
    at: float
    tries: int = 1
    verb: str = "create"
    policy: str = ""  # the cluster policy that refused it: AdmissionPolicy, LimitRange, QuotaExceeded and so on

    @property
    def invalid(self) -> bool:
        """The object is invalid (422) or cannot be decoded (400): a retry gets the same answer."""
        return not self.policy and (self.code == 422 or (self.code == 400 and self.reason == "BadRequest"))


class Config(msgspec.Struct, frozen=True):
    """The administrator's configuration and the files we ship, read by `app`."""

    accelerators: Mapping[str, Json] = msgspec.field(default_factory=dict)
    files: Mapping[str, str] = msgspec.field(default_factory=dict)  # shipped program texts, by file name
    cluster_domain: str = "cluster.local"
    node_lost: float | None = None  # seconds a pod may stay in Terminating past its grace period; None: no limit


class Observed(msgspec.Struct, frozen=True):
    """What the shell knows about one job when it calls `decide`."""

    children: tuple[Child, ...] = ()
    runtime_ids_in_use: frozenset[str] = frozenset()  # RuntimeIds of the other jobs of the namespace
    refused: Mapping[Ref, Refusal] = msgspec.field(default_factory=dict)
    config: Config = msgspec.field(default_factory=Config)


class Delete(NamedTuple):
    """Delete this child, and only this one: the uid is a precondition.

    With `waits` (propagation Foreground) the object exists, and keeps its name, until its pods are gone.
    """

    gvk: GVK
    name: str
    uid: str
    reason: str
    grace: int | None = None  # gracePeriodSeconds; 0: force deletion, as the node is lost
    foreground: bool = False

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Patch(NamedTuple):
    """A merge patch. Its body has metadata.uid, so that another object of the same name is never changed.

    `subresource` "" is the object itself.
    """

    gvk: GVK
    name: str
    subresource: str
    body: Json

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Create(NamedTuple):
    """A child to create. `render` builds the object only when it is sent, so that a plan stays cheap."""

    gvk: GVK
    name: str
    slot: Slot | None  # None: an extra (Service, ConfigMap, TensorBoard), found by its name
    attempt: int = 0
    depends_on: tuple[Ref, ...] = ()  # missing children of this job that must be created first

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Event(NamedTuple):
    """A Kubernetes Event, recorded after the writes. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str
    about: Ref | None = None  # not recorded when a write of this child was refused


class Plan(msgspec.Struct, frozen=True):
    """What should be written, in the order in which it is written.

    A `spec_patch` is sent alone; if it changes the spec, the pass ends, and the next pass decides again. Otherwise the
    status patch is first, before any other write: its resourceVersion stops a pass that decided on a stale job. Then
    deletes, patches, creates, events.
    """

    status: Json
    status_changed: bool = False
    spec_patch: Json | None = None
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    creates: tuple[Create, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_at: float | None = None  # time of the next pass, even without a watch event
    urgent: bool = False  # the status changes in more than counts: do not delay its patch

    @property
    def writes_objects(self) -> bool:
        """True when something besides status and events is to be written."""
        return bool(self.deletes or self.patches or self.creates)

    @property
    def idle(self) -> bool:
        return not (self.status_changed or self.spec_patch or self.writes_objects)
