"""Input and output of `decide`: the observed state (`Child`, `Observed`) and the writes (`Plan`).

Rules for this file:
- Everything is frozen. Wire objects inside (templates, specs, statuses) are dicts that are never changed in place.
- Times are seconds since 1970 in UTC. Names are the API's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple

import msgspec

from trainyard.objects import GVK, Json, Ref
from trainyard.objects.writes import Delete, Patch, Verb


class Slot(msgspec.Struct, frozen=True, order=True, gc=False):
    """One replica by role and index, or a whole role (index 0) if one object runs it. It has one child."""

    role: str
    index: int


class ChildStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What thousands of children have in common, such as all running pods, so that they share one of it.

    A comment with kinds says which kinds set the fields below it.
    """

    # batch Job, Pod; Deployment: reason and message of the condition that shows a failure
    phase: str = ""  # Pod: status.phase. Job: "", "Complete", "Failed"
    reason: str = ""
    message: str = ""
    # Pod
    disrupted: bool = False  # condition DisruptionTarget, or a reason of children.DISRUPTIONS
    had_exec: str = ""  # whether a command was executed in it: "True", "False"; "": its node does not tell
    no_progress: str = ""  # the annotation NO_PROGRESS, which a node writes
    progress: str = ""  # the annotation PROGRESS of a pod with REPORT_PROGRESS, which a node writes
    is_scheduled: bool = False  # it has a node: condition PodScheduled
    has_runtime: bool = False  # its containers have IDs: a runtime has made them, and not a simulated kubelet
    containers: str = ""  # one line per container, see children.py: "name|state|code|reason|restarts|flags"
    # batch Job
    failed_pods: int = 0  # status.failed, which includes deleted pods
    # StatefulSet
    replicas: int = 0  # spec.replicas
    # PodGroup
    min_count: int = 0  # of a gang of scheduling.k8s.io: so many members start together
    spec_fields: tuple[tuple[str, ...], ...] = ()  # the paths of its fields under spec, at most two names deep
    # batch Job, Pod, StatefulSet
    pod_group: str = ""  # schedulingGroup.podGroupName of the pod, or of the pod template
    # batch Job, Pod
    queue: str = ""  # the queue of Kueue that holds this object by itself: suspended, or behind an admission gate


NO_STATUS = ChildStatus()


class Child(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One observed child as cached: about 0.5 KiB each, not tracked by Python's garbage collector.

    `job_uid` is the OWNER label (the job's uid). `owner_uid` is the uid in the controller ownerReference: the job's, or
    for a pod that of its batch Job, StatefulSet or ReplicaSet.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    job_uid: str = ""
    owner_uid: str = ""
    role: str = ""
    index: int = -1
    attempt: int = 0
    deleting: bool = False
    delete_deadline: float = 0.0  # metadata.deletionTimestamp: when the grace period ends
    held_by_finalizers: bool = False  # deleted with a grace period of 0, or by force: nothing else keeps it
    created: float = 0.0
    start_time: float = 0.0  # batch Job, Pod
    finished_at: float = 0.0  # batch Job, Pod: when the last container ended, or its last transition
    # auxiliary objects with a digest
    digest: str = ""  # of the values that it was rendered from
    status: ChildStatus = NO_STATUS

    @property
    def phase(self) -> str:
        """`status.phase`."""
        return self.status.phase

    @property
    def reason(self) -> str:
        """`status.reason`."""
        return self.status.reason

    @property
    def message(self) -> str:
        """`status.message`."""
        return self.status.message

    @property
    def disrupted(self) -> bool:
        """`status.disrupted`."""
        return self.status.disrupted

    @property
    def pod_group(self) -> str:
        """`status.pod_group`."""
        return self.status.pod_group

    @property
    def queue(self) -> str:
        """`status.queue`."""
        return self.status.queue

    @property
    def containers(self) -> str:
        """`status.containers`."""
        return self.status.containers

    @property
    def failed_pods(self) -> int:
        """`status.failed_pods`."""
        return self.status.failed_pods

    @property
    def replicas(self) -> int:
        """`status.replicas`."""
        return self.status.replicas

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.kind, self.name)


class Refusal(msgspec.Struct, frozen=True):
    """A refused write: the name is taken, a quota is exceeded, the object is invalid, RBAC forbids it.

    The operator keeps it in memory; losing it costs one more request. `attempts` counts consecutive refusals, for the
    back-off. `verb` is that of the refused write. `at`: seconds since 1970.
    """

    code: int
    reason: str
    message: str
    at: float
    attempts: int = 1
    verb: Verb = "create"
    policy: str = ""  # the cluster policy that refused it: AdmissionPolicy, LimitRange, QuotaExceeded and so on

    @property
    def invalid(self) -> bool:
        """The object is invalid (422) or cannot be decoded (400): a retry is refused, too."""
        return not self.policy and (self.code == 422 or (self.code == 400 and self.reason == "BadRequest"))


class MasterWait(msgspec.Struct, frozen=True):
    """The init container of a PyTorchJob's workers, which waits for the master. `image`: "" is the worker's own.
    `max_tries`: two seconds apart. `containers`: those of the administrator's template instead, see
    kinds/kubeflow_v1/master_wait.py."""

    image: str = ""
    max_tries: int = 100
    containers: tuple[Json, ...] = ()


class SSHKey(msgspec.Struct, frozen=True):
    """A private key in PEM, and the line of the public key for `authorized_keys`."""

    private: str
    public: str


class Config(msgspec.Struct, frozen=True):
    """The administrator's configuration and the files of the distribution, read by `app`."""

    accelerators: Mapping[str, Json] = msgspec.field(default_factory=dict)
    # texts of the programs that run in pods, by file name
    program_files: Mapping[str, str] = msgspec.field(default_factory=dict)
    new_ssh_key: Callable[[], SSHKey] | None = None  # None: no key is made, as in `trainyard plan`
    cluster_domain: str = "cluster.local"
    # seconds that a pod may stay in Terminating past its grace period; None: no limit
    node_lost_timeout: float | None = None
    # "": no PodGroups; "native": those of Kubernetes itself; "volcano": those of Volcano; any other: those of
    # scheduler-plugins, whose schedulerName it is
    gang_scheduler: str = ""
    # "native" was asked for, and the API server does not serve its groups: gang_scheduler is ""
    gangs_not_served: bool = False
    # with "native": only jobs that request extended resources have a PodGroup
    gangs_need_devices: bool = False
    master_wait: MasterWait = msgspec.field(default_factory=MasterWait)
    kubectl_delivery_image: str = ""  # of the launcher's init container of an MPIJob v1; "": it has none
    missing_resources: frozenset[GVK] = frozenset()  # of RoleTable.optional_resources, those that are not served


class Observed(msgspec.Struct, frozen=True):
    """The observed state around one job, as passed to `decide`."""

    children: tuple[Child, ...] = ()
    runtime_ids_in_use: frozenset[str] = frozenset()  # RuntimeIds of the other jobs in the namespace
    refused: Mapping[Ref, Refusal] = msgspec.field(default_factory=dict)
    config: Config = msgspec.field(default_factory=Config)
    template_source: Json | None = None  # the object of Kind.template_source, read while the job has no snapshot of it
    template_error: str = ""  # why it could not be read
    held: str | None = None  # why no job of the kind is served, "" while that is not known; None: they are served


class PlannedCreate(msgspec.Struct, frozen=True):
    """A child to create. render_child renders the object when it is sent, so that a plan is cheap."""

    verb: ClassVar[Verb] = "create"
    gvk: GVK
    name: str
    slot: Slot | None  # None: an auxiliary object (Service, ConfigMap, TensorBoard), by its name
    attempt: int = 0
    depends_on: tuple[Ref, ...] = ()  # missing children of this job that must be created first

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.gvk.kind, self.name)


class ObservedSlots(msgspec.Struct, frozen=True):
    """The slots of a job by what was observed of them: see the fields of Job. A new object of the job is rendered with
    them, as its patches are: the number of members of a gang is that of the replicas that have not ended."""

    running: frozenset[Slot] = frozenset()
    succeeded: frozenset[Slot] = frozenset()
    present: frozenset[Slot] = frozenset()
    ended: frozenset[Slot] = frozenset()
    ungrouped: frozenset[Slot] = frozenset()


class Event(msgspec.Struct, frozen=True):
    """A Kubernetes Event, recorded after the writes. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str
    regarding: Ref | None = None  # the event is not recorded if a write of this child is refused


class Plan(msgspec.Struct, frozen=True):
    """The writes of one reconcile, in the order in which they are sent.

    The `spec_patch` is first: it stores the defaults that the rest was decided with. The status patch precedes all
    other writes: its resourceVersion stops a reconcile that decided on a stale job. Then deletes, patches, creates,
    events.
    """

    status: Json
    status_changed: bool = False
    spec_patch: Json | None = None
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    creates: tuple[PlannedCreate, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_at: float | None = None  # time of the next reconcile, even without a watch event
    urgent: bool = False  # more than counts changes in the status: its patch is not delayed
    slots: ObservedSlots = ObservedSlots()  # with which the creates are rendered
    pod_warnings: tuple[Event, ...] = ()  # about pods that cannot start, in each plan; recorded once, `events.unwarned`

    @property
    def writes_objects(self) -> bool:
        """True when there are writes besides status and events."""
        return bool(self.deletes or self.patches or self.creates)

    @property
    def deferrable(self) -> bool:
        """Whether all writes may wait: replica counts in the status, and patches that follow the pods."""
        return not (self.urgent or self.deletes or self.creates or any(not patch.deferrable for patch in self.patches))

    @property
    def idle(self) -> bool:
        """Whether the plan writes nothing."""
        return not (self.status_changed or self.spec_patch or self.writes_objects)


class ExitAction(Enum):
    """The effect of a failed exit of a supervised replica."""

    RETRY = "Retry"  # the replica restarts, within backoffLimit
    FAIL = "Fail"  # the job fails
    IGNORE = "Ignore"  # the replica stays failed, and the job goes on without it


class RestartScope(Enum):
    """What restarts after a failure that is retried."""

    SLOT = "slot"  # the replica alone; its back-off counts from its start, not from its end
    ROLE = "role"  # all replicas of the role that have not succeeded, under a new attempt number
    GANG = "gang"  # all replicas of the job, those that have succeeded too


class TemplateChange(Enum):
    """The effect of an edit of a role while the job runs (docs/rules.md S11)."""

    IGNORE = "Ignore"  # the role is fixed after the start; Api.rules_after_start refuses the edit
    NEW_REPLICAS = "NewReplicas"  # replicas that are created afterwards have the new template
    RESTART = "Restart"  # the role's replicas restart


class AuxiliaryObject(msgspec.Struct, frozen=True):
    """An object beside the replicas. `body()` renders it without its name, owner reference and common labels.

    With a `digest` it is patched when the part of the spec that it is rendered from changes. `depends_on`: the children
    that it refers to by name; it is created after these exist and are owned by the job, and not patched while one is
    still to be created. `slot`: the replica that it belongs to; it is created right after that replica's object.
    """

    gvk: GVK
    name: str
    body: Callable[[], Json]
    deleted_on_suspend: bool = False  # for an object that runs pods, or means nothing without them
    create_after_replicas: bool = False
    digest: str = ""
    depends_on: tuple[Ref, ...] = ()
    slot: Slot | None = None
    deleted_at_end: bool = False  # under every cleanPodPolicy
    # phases in which it counts as not yet created for the children that depend on it
    blocking_phases: frozenset[str] = frozenset()
    # For an object of a resource that the operator may create and not read: the child that is created after it. The
    # object exists if that child does.
    exists_with: Ref | None = None
    deferrable: bool = False  # its content follows the pods, so its patches may wait for further changes
    deleted_with_slot: bool = False  # cleanPodPolicy deletes it together with the object of its slot
    # A scheduler that writes this into every pod that waits looks at none of them again before this object changes.
    asleep_text: re.Pattern[str] | None = None
    # of its spec, see render.update_patch
    fixed_fields: frozenset[str] = frozenset()  # sent at the creation only: immutable, or the cluster's to change
    optional_fields: frozenset[str] = frozenset()  # removed, with entries of theirs, once body() does not have them

    @property
    def ref(self) -> Ref:
        """Kind and name of the object."""
        return Ref(self.gvk.kind, self.name)


class ConditionUpdate(msgspec.Struct, frozen=True):
    """Reason and message of a condition that holds."""

    type: str
    reason: str
    message: str


class Condition(NamedTuple):
    """A condition as evaluated in this reconcile. One that does not hold and never did is not written."""

    type: str
    holds: bool
    reason: str
    message: str


class WrittenConditions(msgspec.Struct, frozen=True):
    """The conditions of the status, and the updates that events report: what became True or changed its reason."""

    conditions: tuple[Json, ...]
    updates: tuple[ConditionUpdate, ...]
