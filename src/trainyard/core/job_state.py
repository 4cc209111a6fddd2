"""What is known of a job beside its kind: its parsed spec and status, its replicas and children, its outcome.

`Job` (kind.py) has them together. Everything is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainyard.core.model import Child, Slot
from trainyard.objects import Json, Problem, Ref
from trainyard.objects.structs import replace

Phase = Literal["Created", "Starting", "Running", "Suspended", "Succeeded", "Failed", "Invalid"]
"""The phase of a job. Starting: it has run, and no replica runs at the moment. Invalid: its spec was invalid at its
start."""
JobResult = Literal["", "Succeeded", "Failed"]
"""How a job has ended; "" while it has not."""
ReplicaState = Literal["Unknown", "Starting", "Running", "Succeeded", "Failed"]
"""The state of a replica. Unknown: no object runs it, or that object is being replaced."""
RestartCause = Literal["program", "node-lost", "preemption", "eviction", "stall"]
"""Why replicas restart: `program`, it exited; `stall`, it made no step; the others are disruptions (S27)."""
CleanPodPolicy = Literal["", "None", "Running", "All"]
"""`cleanPodPolicy`; "" when it is unset."""


class Role(msgspec.Struct, frozen=True):
    """One replica type of a job."""

    name: str  # as in the spec and in labels: MASTER
    replicas: int
    port: int
    template: Json | None  # None: it differs from the template that the job was started with, so no child is created
    digest: str = ""  # of the defaulted template and of the other fields that the children are rendered from
    container: str = ""  # the container whose exit code is the replica's; "": Kind.roles.container
    # after how many failures of this role the job fails, counted as the controller of batch Jobs does; None: no limit
    backoff_limit: int | None = None

    def resized(self, replicas: int) -> Role:
        """The same role with another number of replicas."""
        return replace(self, replicas=replicas)


class Policy(msgspec.Struct, frozen=True):
    """The optional policies of a job. None and "" mean unset: the behaviour that the old operators document."""

    clean_pod_policy: CleanPodPolicy = ""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""


class ParsedSpec(msgspec.Struct, frozen=True):
    """A parsed and defaulted spec: the result of `Kind.api.read`."""

    roles: tuple[Role, ...]
    policy: Policy
    spec: Json  # the user's spec with all defaults, as it is to be stored
    problems: tuple[Problem, ...] = ()  # the first is the one that the old operators report
    unknown: tuple[str, ...] = ()  # paths of unknown fields
    snapshot: Json | None = None  # of the object that has the templates, if they are not in the spec


class RoleStatus(msgspec.Struct, frozen=True):
    """One role in `status.roles`: its attempt, its counted failures, and the shape that the job was started with."""

    attempt: int = 0
    failures: int = 0  # failed attempts that have been counted
    replicas: int = 0
    port: int = 0
    digest: str = ""
    without_progress: int = 0  # attempts in a row that ended without progress, before the present one (S14)
    in_place: int = 0  # restarts in place of replicas that were replaced since, see restart_count.py
    # failures before the last restart that Lifecycle.on_role_failure has led to: Role.backoff_limit begins anew
    failures_before: int = 0


STALLED = "Stalled"
"""Type of the condition of a job that makes no progress, see policies/progress.py."""
SUCCESS_IN_DOUBT = "SuccessInDoubt"
"""Type of the condition of a succeeded job whose work may not be done."""
WORKER_LOST, WORKERS_UNUSED = "WorkerLost", "WorkersUnused"
"""Its reasons."""


class Launch(msgspec.Struct, frozen=True):
    """`status.launch` of a job whose launcher starts processes in other replicas: the pods that have run together.
    policies/success_doubt.py has its rules."""

    run: str = ""  # the run of the launcher's container during which all workers have run; "" before
    workers: str = ""  # the digest of the runs of their containers then
    lost: tuple[str, ...] = ()  # the names of those of these pods that were lost during that run, a few


class JobStatus(msgspec.Struct, frozen=True):
    """The parsed status. It and the children are the operator's only durable state of a job."""

    stored: Json  # the operator's own fields
    whole: Json = msgspec.field(default_factory=dict)  # the object's status; `stored` unless StatusShape.public is set
    conditions: tuple[Json, ...] = ()
    outcome: JobResult = ""  # never reset
    started: bool = False  # children may exist
    suspended: bool = False
    has_run: bool = False  # a replica has run since the job was started or resumed
    # of a gang of which all replicas have run at the same time: the digest of the uids of their children; "" before,
    # and once one has ended for good
    gang: str = ""
    launch: Launch = Launch()
    # the reason of a failure before StatusShape.condition_message changes it, e.g. BackoffLimitExceeded
    failure_cause: str = ""
    start_time: float | None = None
    completion_time: float | None = None
    resume_count: int = 0
    counted_failures: tuple[str, ...] = ()  # keys of failed attempts, see failures.failure_key
    # by cause, without `program`: those are `status.restarts`
    restart_causes: Mapping[RestartCause, int] = msgspec.field(default_factory=dict)
    # when the restarts in the window of the annotation `restart-limit` were counted; none without it
    recent_restarts: tuple[float, ...] = ()
    # the restarts after which Role.backoff_limit began anew, as far as the kind limits them (RoleFailure.is_limited)
    restarts_count_towards_max: int = 0
    runtime_id: str = ""  # part of the names of the children, if Api.has_runtime_id
    roles: Mapping[str, RoleStatus] = msgspec.field(default_factory=dict)

    def role(self, name: str) -> RoleStatus:
        """What the status remembers of a role; a RoleStatus of zeros for a new one."""
        return self.roles.get(name) or RoleStatus()


class Termination(msgspec.Struct, frozen=True):
    """How an attempt of a slot ended without success."""

    uid: str  # under which the failure is counted: the pod's, or the batch Job's if one Job is one attempt
    finished_at: float  # seconds since 1970
    started_at: float
    exit_code: int  # the exit code; -1: unknown
    reason: str
    container: str = ""
    disrupted: bool = False  # by the node or the scheduler: the pod is replaced, and no failure is counted (S27)
    fails_job: bool = False  # not retryable
    ignored: bool = False  # the replica stays failed, and the job goes on (ExitAction.IGNORE)
    ignored_until: float = 0.0  # ignored before this time: the watch event of its pod may still arrive
    job_reason: str = "PermanentFailure"  # the reason of the job's failure, if `fails_job`
    message: str = ""  # the container's termination message, or that of the pod or batch Job
    memory_limit: str = ""  # of the container, where its template has one
    pod_is_gone: bool = False  # deleted: its container and exit code are unknown, its logs are lost


NO_POD = "has no pod yet"
"""The message of a replica whose object exists, but whose controller has not created its pod yet."""


class Replica(msgspec.Struct, frozen=True):
    """The observed state of one slot."""

    slot: Slot
    child: Child | None  # the object with its name, even one of an older attempt or in Terminating
    state: ReplicaState
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
    """The phase of a job, with its reason and a message for users. `role`: the role whose failure ended the job, ""
    where no role alone did."""

    phase: Phase
    reason: str = ""
    message: str = ""
    role: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the phase is final: the job never runs again."""
        return self.phase in ("Succeeded", "Failed", "Invalid")


class RoleFailure(msgspec.Struct, frozen=True):
    """What follows when a role has failed more often than Role.backoff_limit: the job fails for `reason`, or, without
    one, all its replicas restart. `role`: the role that decides. `is_limited`: the restart counts in
    JobStatus.restarts_count_towards_max. `text`: what has failed how often, for messages."""

    role: str
    reason: str = ""
    is_limited: bool = True
    text: str = ""


class OwnedObjects(msgspec.Struct, frozen=True):
    """The children of one job, verified by owner reference."""

    by_ref: Mapping[Ref, Child]
    pods_by_owner: Mapping[str, tuple[Child, ...]]  # by the uid in their controller owner reference
    # pods whose Job or StatefulSet is gone, and pods of a Deployment's ReplicaSet
    pods_without_owner: tuple[Child, ...] = ()

    @classmethod
    def of(cls, uid: str, children: tuple[Child, ...]) -> OwnedObjects:
        """Sort the children of the job with this uid: owned objects, pods by owner uid, and pods whose owner is
        gone."""
        by_ref = {child.ref: child for child in children if child.owner_uid == uid}
        uids = {child.uid for child in by_ref.values()} | {uid}
        pods_by_owner: dict[str, list[Child]] = {}
        without_owner = []
        for child in children:
            if child.kind == "Pod" and child.owner_uid in uids:
                pods_by_owner.setdefault(child.owner_uid, []).append(child)
            elif child.kind == "Pod" and child.job_uid == uid:
                without_owner.append(child)
        return cls(by_ref, {owner: tuple(pods) for owner, pods in pods_by_owner.items()}, tuple(without_owner))
