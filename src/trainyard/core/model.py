"""The values that cross the decision's door: what is seen (`Child`, `Seen`) and what is answered (`Plan`).

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

JOB = GVK("batch", "v1", "Job", "jobs")
POD = GVK("", "v1", "Pod", "pods")
SERVICE = GVK("", "v1", "Service", "services")
CONFIG_MAP = GVK("", "v1", "ConfigMap", "configmaps")
DEPLOYMENT = GVK("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = GVK("apps", "v1", "StatefulSet", "statefulsets")
SERVICE_ACCOUNT = GVK("", "v1", "ServiceAccount", "serviceaccounts")
RBAC_ROLE = GVK("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = GVK("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


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
    doomed: float = 0.0  # when what is being deleted should have been gone, its grace included
    created: float = 0.0
    # batch Job, Pod; of a Deployment its trouble: reason and message
    phase: str = ""  # Pod: status.phase. Job: "", "Complete", "Failed"
    reason: str = ""
    message: str = ""
    started: float = 0.0
    ended: float = 0.0  # when the last container ended, or the pod's or Job's last transition
    # Pod
    in_place: bool = False  # its node starts a failed container again, so such an exit is no end
    always: bool = False  # and one that ended well, too
    disrupted: bool = False  # condition DisruptionTarget, or a reason that names one
    containers: str = ""  # one line a container, see children.py: "name|state|code|reason|restarts|init"
    # batch Job
    failed_pods: int = 0  # that its controller has counted, those that have gone included
    # StatefulSet
    replicas: int = 0  # of its spec
    # extras that follow the spec
    digest: str = ""  # of what it was rendered from

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name)


class Refusal(msgspec.Struct, frozen=True):
    """What the API server answered to one of our writes: a foreign object, a quota, an invalid template, no right.

    Kept by the shell in memory; losing it costs one more try. `tries` counts the refusals in a row, for the back-off.
    `verb` is what was refused: create, patch or delete.
    """

    code: int
    reason: str
    message: str
    at: float
    tries: int = 1
    verb: str = "create"
    policy: str = ""  # what of the cluster refuses it now: AdmissionPolicy, LimitRange, QuotaExceeded and the like

    @property
    def invalid(self) -> bool:
        """The object itself is wrong, or no object of its type at all: the answer stays the same."""
        return not self.policy and (self.code == 422 or (self.code == 400 and self.reason == "BadRequest"))


class Config(msgspec.Struct, frozen=True):
    """The administrator's configuration and the files we ship, read by `app`."""

    accelerators: Mapping[str, Json] = msgspec.field(default_factory=dict)
    files: Mapping[str, str] = msgspec.field(default_factory=dict)  # shipped program texts, by file name
    cluster_domain: str = "cluster.local"
    node_lost: float | None = None  # seconds after its time that a pod may stay in Terminating; None: for ever


class Seen(msgspec.Struct, frozen=True):
    """What the shell sees of one job when it asks."""

    children: tuple[Child, ...] = ()
    ids_in_use: frozenset[str] = frozenset()  # RuntimeIds of the other jobs of the namespace
    refused: Mapping[Ref, Refusal] = msgspec.field(default_factory=dict)
    config: Config = msgspec.field(default_factory=Config)


class Delete(NamedTuple):
    """Delete this child, and only this one: the uid is a precondition.

    With `waits` the object itself stays until its pods have gone (propagation Foreground), and holds its name so long.
    """

    gvk: GVK
    name: str
    uid: str
    reason: str
    grace: int | None = None  # 0: without its node, which is lost
    waits: bool = False

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Patch(NamedTuple):
    """A merge patch of an existing object, which its body names by uid: a namesake is never changed.

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
    """A child to make. What it looks like is worked out by `render` when it is sent, so a plan stays cheap."""

    gvk: GVK
    name: str
    slot: Slot | None  # None: an extra (Service, ConfigMap, TensorBoard), found by its name
    attempt: int = 0
    needs: tuple[Ref, ...] = ()  # what is not there yet, and has to be made as ours before

    @property
    def ref(self) -> Ref:
        return Ref(self.gvk.kind, self.name)


class Event(NamedTuple):
    """Something for people, said after the writes succeeded. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str
    about: Ref | None = None  # said only if this child could be made


class Plan(msgspec.Struct, frozen=True):
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
