"""In what the kinds of `kubeflow.org/v1` differ from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trainyard.core import AuxiliaryObject, Job, Kind, RestartScope, Rule, Slot, WorkloadAdapter
from trainyard.core.kind import TRAINYARD_OPERATOR, Diagnosis
from trainyard.core.scripts import ScriptFramework
from trainyard.objects import GVK, Json, Ref
from trainyard.objects.resources import SERVICE

WORKER, MASTER = "Worker", "Master"


class Framework(msgspec.Struct, frozen=True):
    """One kind of `kubeflow.org`.

    `roles`: the keys of the replica map, in the order in which replicas are created. `port`: of the main container when
    it has no port named `port_name`. environment(job, slot): the variables for every container of the pod, or for the
    main container alone with `main_container_only`. leading_role(job): the role whose replicas make the job Running.
    success_sets(job), restart_scope(job): see Lifecycle. on_pod_template(template, job, slot) changes the pod template
    after the variables. qualified(job): the texts name the job with its namespace. `failed_text` and `restarting_text`
    have the fields name, namespace, count and role. auxiliary(job): the objects beside the pods, of the kinds in
    `auxiliary_resources`; unset: a Service for each replica.
    """

    kind: str
    spec_type: type
    replicas_field: str
    roles: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart_policy: str  # of a role without one
    environment: Callable[[Job, Slot], list[Json]]
    success_sets: Callable[[Job], tuple[frozenset[Slot], ...]]
    leading_role: Callable[[Job], str]
    restart_scope: Callable[[Job], RestartScope]
    restart_text: str  # what restarts with a failed replica, for the docs
    scalable: bool = False  # has the scale subresource of the role Worker
    all_meet: bool = True  # training begins when all replicas (of an elastic job, minReplicas) have met
    elastic: bool = False  # has an elasticPolicy, with metrics for a HorizontalPodAutoscaler
    rules: tuple[Rule, ...] = ()
    main_container_only: bool = False
    mutate: Callable[[Json, Job, Slot], None] = lambda template, job, slot: None
    is_master: Callable[[Job, Slot], bool] | None = None  # has the label job-role; unset: the leading role's replica 0
    limits_stop_pods: bool = True
    running_succeed: bool = True  # the replicas that still run when the job has succeeded count as succeeded
    ignores_failure: Callable[[Job, Slot], bool] = lambda job, slot: False
    in_place_failure_is_final: bool = False  # a pod that failed in spite of OnFailure or Always fails the job
    worker_slots: Callable[[Job], frozenset[Slot]] = lambda job: frozenset()  # see Lifecycle
    workers_reached_by_exec: bool = False  # see Lifecycle
    serving_roles: frozenset[str] = frozenset()  # whose replicas do not end by themselves
    selector_in_status: bool = True
    qualified: Callable[[Job], bool] = lambda job: False
    failed_text: str = "{kind} {name} is failed because {count} {role} replica(s) failed."
    restarting_text: str = "job {name} is restarting because {role} replica(s) failed."
    version: str = "v1"
    operator: str = ""  # in labels and in the source of events; "": KIND-controller
    managers: tuple[str, ...] = ("kubeflow.org/training-operator", TRAINYARD_OPERATOR)  # see Api
    restart_policies: Mapping[str, str] = msgspec.field(default_factory=dict)  # of roles with another default
    carriers: Mapping[str, WorkloadAdapter] = msgspec.field(default_factory=dict)  # of roles that no Pod runs
    labels: Callable[[Job, Slot], dict[str, str]] | None = None  # of a Pod, in place of the Training Operator's
    awaited_slots: Callable[[Job, Slot], frozenset[Slot]] = lambda job, slot: frozenset()  # see PodRecipe
    job_spec_fields: Callable[[Job, Slot], Json] = lambda job, slot: {}  # see PodRecipe
    all_run: bool = False  # the job is Running while all replicas run
    texts: Mapping[str, str] = msgspec.field(default_factory=dict)  # of conditions, in place of the Training Operator's
    has_versions: bool = False  # see Api
    created_in_version: Callable[[Json], bool] = lambda obj: False  # see Api
    further_versions: tuple[Kind, ...] = ()  # see Kind
    single_roles: frozenset[str] = frozenset()  # roles of one replica, whose object's name has no index
    default_replicas: Mapping[str, int] = msgspec.field(default_factory=dict)  # of roles for which it is not 1
    main_is_first: bool = False  # the main container is the first one, whatever its name
    dotted_names: bool = False  # no Service has the name of a job, so that it may have dots
    run_policy: Callable[[Json], object] = lambda spec: spec.get("runPolicy")
    auxiliary: Callable[[Job], tuple[AuxiliaryObject, ...]] | None = None
    auxiliary_resources: tuple[GVK, ...] = (SERVICE,)
    dependencies: Callable[[Job, Slot], tuple[Ref, ...]] = lambda job, slot: job.blocking_objects()  # see PodRecipe
    silent_resources: frozenset[GVK] = frozenset()  # whose creates and deletes cause no event
    created_resources: tuple[GVK, ...] = ()  # see RoleTable
    patched_resources: tuple[GVK, ...] = ()  # of them, those that are patched when their content changes
    diagnosis: Diagnosis = Diagnosis()
    own_network: str = ""  # see Api
    scripts: tuple[ScriptFramework, ...] = ()

    @property
    def controller(self) -> str:
        """The name in the label `operator-name` and in the source of events."""
        return self.operator or f"{self.kind.lower()}-controller"

    def restart_policy_of(self, role: str, replica_spec: Json) -> str:
        """`restartPolicy` of a replica set, or the default."""
        return str(replica_spec.get("restartPolicy") or self.restart_policies.get(role, self.restart_policy))

    @property
    def plural(self) -> str:
        """The resource: pytorchjobs."""
        return f"{self.kind.lower()}s"

    def replica_map(self, spec: Json) -> dict[str, Json]:
        """The replica sets of a spec by role. The keys are compared without regard to case, as in the Training
        Operator; malformed sets are left out."""
        stored = spec.get(self.replicas_field)
        sets: Mapping[str, object] = stored if isinstance(stored, dict) else {}
        names = {role.lower(): role for role in self.roles}
        by_role = {names.get(key.lower(), key): value for key, value in sets.items() if isinstance(value, dict)}
        return {role: by_role[role] for role in self.roles if role in by_role}

    def replica_spec(self, job: Job, role: str) -> Json:
        """The replica set of a role in the defaulted spec, {} when there is none."""
        sets: dict[str, Json] = job.cached_of_spec("replica_map", lambda job: self.replica_map(job.parsed.spec))
        return sets.get(role, {})

    def object_name(self, job: Job, slot: Slot) -> str:
        """The name of the object that runs a replica."""
        return (
            f"{job.key.name}-{slot.role.lower()}"
            if slot.role in self.single_roles
            else replica_name(job, slot.role, slot.index)
        )


def replica_name(job: Job, role: str, index: int) -> str:
    """The name of a replica's Pod and of its Service."""
    return f"{job.key.name}-{role.lower()}-{index}"


def total_replicas(job: Job) -> int:
    """The replicas of all roles together."""
    return sum(role.replicas for role in job.roles)


def all_of(role: str, job: Job) -> frozenset[Slot]:
    """The slots of one role."""
    return frozenset(slot for slot in job.slots() if slot.role == role)
