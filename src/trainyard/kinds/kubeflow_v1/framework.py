"""In what the kinds of `kubeflow.org/v1` differ from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trainyard.core import Job, RestartScope, Rule, Slot
from trainyard.core.diagnosis import Diagnosis
from trainyard.core.scripts import ScriptFramework
from trainyard.objects import Json

WORKER, MASTER = "Worker", "Master"


class Framework(msgspec.Struct, frozen=True):
    """One kind of `kubeflow.org/v1`.

    `roles`: the keys of the replica map, in the order in which replicas are created. `port`: of the main container when
    it has no port named `port_name`. environment(job, slot): the variables for every container of the pod, or for the
    main container alone with `main_container_only`. leading_role(job): the role whose replicas make the job Running.
    success_sets(job), restart_scope(job): see Lifecycle. on_pod_template(template, job, slot) changes the pod template
    after the variables. qualified(job): the texts name the job with its namespace. `failed_text` has the fields name,
    namespace, count and role.
    """

    kind: str
    spec_type: type
    replicas_field: str
    roles: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart_policy: str
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
    ignores_failure: Callable[[Job, Slot], bool] = lambda job, slot: False
    in_place_failure_is_final: bool = False  # a pod that failed in spite of OnFailure or Always fails the job
    selector_in_status: bool = True
    qualified: Callable[[Job], bool] = lambda job: False
    failed_text: str = "{kind} {name} is failed because {count} {role} replica(s) failed."
    diagnosis: Diagnosis = Diagnosis()
    scripts: tuple[ScriptFramework, ...] = ()

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


def replica_name(job: Job, role: str, index: int) -> str:
    """The name of a replica's Pod and of its Service."""
    return f"{job.key.name}-{role.lower()}-{index}"


def total_replicas(job: Job) -> int:
    """The replicas of all roles together."""
    return sum(role.replicas for role in job.roles)


def all_of(role: str, job: Job) -> frozenset[Slot]:
    """The slots of one role."""
    return frozenset(slot for slot in job.slots() if slot.role == role)
