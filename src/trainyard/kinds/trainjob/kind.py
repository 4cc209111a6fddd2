"""TrainJob as a kind: its templates are in a runtime, its roles are the replicated jobs, in the order of `dependsOn`.

The pods are the job's own: no JobSet and no batch Job is made, but names, labels and variables are those that their
controllers would give the pods (expand.py).
"""

from __future__ import annotations

from functools import partial

from trainyard.core import (
    POD_CARRIER,
    Api,
    Config,
    ExitAction,
    Job,
    Kind,
    Lifecycle,
    OtherController,
    PodRecipe,
    RestartScope,
    RoleFailure,
    RoleTable,
    Slot,
    StatusShape,
    TemplateKind,
    TemplateSource,
)
from trainyard.core.kind import Diagnosis
from trainyard.kinds.kubeflow_v1.gang import POD_GROUPS, pod_group_of
from trainyard.kinds.trainjob import children, failure_policy, status, webhooks
from trainyard.kinds.trainjob.admission_policies import admission_policies
from trainyard.kinds.trainjob.definitions import (
    CLUSTER_TRAINING_RUNTIME,
    COLUMNS,
    RUNTIME_RULES,
    TRAIN_JOB,
    TRAIN_JOB_RULES,
    TRAINING_RUNTIME,
    runtime_definition,
    train_job_definition,
)
from trainyard.kinds.trainjob.pod_sets import NODE
from trainyard.kinds.trainjob.roles import read, read_with_runtime, replicated_jobs
from trainyard.kinds.trainjob.shipped_runtimes import public_objects, shipped_runtimes
from trainyard.kinds.trainjob.spec import CONTROLLER, GROUP, TrainJobSpec
from trainyard.objects import GVK, Json, NamespacedName, as_dict, name_of, namespace_of
from trainyard.objects.resources import (
    CONFIG_MAP,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    VALIDATING_WEBHOOK_CONFIGURATION,
)

RUNTIME_KINDS = {
    gvk.kind: TemplateKind(
        gvk, partial(runtime_definition, gvk), RUNTIME_RULES, gvk == TRAINING_RUNTIME, webhooks.review_runtime
    )
    for gvk in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
}


def _reference(obj: Json) -> tuple[TemplateKind, NamespacedName] | None:
    reference = as_dict(as_dict(obj.get("spec")).get("runtimeRef"))
    kind = RUNTIME_KINDS.get(str(reference.get("kind", CLUSTER_TRAINING_RUNTIME.kind)))
    if kind is None or reference.get("apiGroup", GROUP) != GROUP:
        return None
    return kind, NamespacedName(namespace_of(obj) if kind.namespaced else "", str(reference.get("name") or ""))


def _snapshot(runtime: Json) -> Json:
    """The runtime without what the API server adds to its metadata."""
    metadata = {"name": name_of(runtime)}
    kept = {field: value for field in ("labels", "annotations") if (value := runtime["metadata"].get(field))}
    annotations = {
        name: value for name, value in (kept.get("annotations") or {}).items() if not name.startswith("kubectl.")
    }
    kept = {**kept, "annotations": annotations} if annotations else {**kept, "annotations": None}
    metadata |= {field: value for field, value in kept.items() if value}
    identity = {field: runtime[field] for field in ("apiVersion", "kind")}
    return {**identity, "metadata": metadata, "spec": runtime.get("spec") or {}}


def _shipped() -> tuple[tuple[GVK, Json], ...]:
    """The runtimes that Trainer ships, and what its SDK asks an installation for."""
    resources = {gvk.kind: gvk for gvk in (CLUSTER_TRAINING_RUNTIME, NAMESPACE, CONFIG_MAP, ROLE, ROLE_BINDING)}
    return tuple((resources[obj["kind"]], obj) for obj in (*public_objects(), *shipped_runtimes()))


def _success_sets(job: Job) -> tuple[frozenset[Slot], ...]:
    """All pods of the replicated jobs that `successPolicy` names, of all without; with Any those of one of them."""
    policy = children.job_set(job)["spec"]["successPolicy"] if job.roles else {}
    targets = policy.get("targetReplicatedJobs") or [role.name for role in job.roles]
    sets = [frozenset(slot for slot in job.slots() if slot.role == name) for name in targets]
    return tuple(sets) if policy.get("operator") == "Any" else (frozenset().union(*sets),)


def _restart_scope(job: Job) -> RestartScope:
    """With `failurePolicy` all replicated jobs start again, also those that have succeeded."""
    is_gang = bool(job.roles) and failure_policy.is_set(children.job_set(job))
    return RestartScope.GANG if is_gang else RestartScope.SLOT


def _on_role_failure(job: Job, roles: tuple[str, ...]) -> RoleFailure:
    return failure_policy.after_failure(children.job_set(job), job.status.restarts_count_towards_max, roles)


def _exit_note(job: Job, role: str, code: int) -> str:
    status = job.status
    if not job.roles:
        return ""
    return failure_policy.end_note(children.job_set(job), status.failure_cause, status.restarts_count_towards_max)


def _all_slots(job: Job) -> frozenset[Slot]:
    return frozenset(job.slots())


def _awaited(job: Job, slot: Slot, condition: str) -> frozenset[Slot]:
    names = {
        dependency["name"]
        for replicated_job in replicated_jobs(children.job_set(job))
        if replicated_job["name"] == slot.role
        for dependency in replicated_job.get("dependsOn") or ()
        if dependency["status"] == condition
    }
    return frozenset(other for other in job.slots() if other.role in names) if names else frozenset()


def _awaited_slots(job: Job, slot: Slot) -> frozenset[Slot]:
    """The pods of `dependsOn` Ready, and with startupPolicy InOrder those of all replicated jobs before. A pod that has
    succeeded has been ready."""
    awaited = _awaited(job, slot, "Ready")
    if children.job_set(job)["spec"]["startupPolicy"]["startupPolicyOrder"] == "InOrder":
        names = [role.name for role in job.roles]
        earlier = names[: names.index(slot.role)]
        awaited |= {other for other in job.slots() if other.role in earlier}
    return awaited - job.succeeded


def _uses(config: Config, gvk: GVK) -> bool:
    """PodGroups are those of the gang scheduler; without one there are none."""
    return gvk not in POD_GROUPS or gvk == pod_group_of(config.gang_scheduler)


TRAINJOB = Kind(
    api=Api(
        gvk=TRAIN_JOB,
        singular="trainjob",
        spec_type=TrainJobSpec,
        read=read,
        rules=TRAIN_JOB_RULES,
        rules_after_start=(),
        columns=COLUMNS,
        installed_by_default=False,
        definition=train_job_definition,
        review=partial(webhooks.review_job, RUNTIME_KINDS),
        admission_policies=admission_policies,
        managers=(CONTROLLER,),
        other_controller=OtherController(
            "Kubeflow Trainer", VALIDATING_WEBHOOK_CONFIGURATION, "validator.trainer.kubeflow.org"
        ),
    ),
    roles=RoleTable(
        carrier=lambda role: POD_CARRIER,
        container=NODE,
        child_resources=(POD, SERVICE, CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, *POD_GROUPS),
        uses=_uses,
        patched_resources=POD_GROUPS,
        created_resources=(SECRET,),
    ),
    pods=PodRecipe(
        name=children.pod_name,
        labels=children.pod_labels,
        mutate_pod_template=children.pod_template,
        awaited_slots=_awaited_slots,
        awaited_successes=lambda job, slot: _awaited(job, slot, "Complete"),
    ),
    lifecycle=Lifecycle(
        success_sets=_success_sets,
        on_exit=lambda job, slot, code, reason: ExitAction.RETRY,
        supervised_slots=_all_slots,
        restart_scope=_restart_scope,
        restart_text="a pod is replaced alone; with `failurePolicy` of the runtime all of them start again",
        on_role_failure=_on_role_failure,
        default_backoff_limit=None,
    ),
    status=StatusShape(
        render=status.render,
        public=status.public,
        source="trainjob-controller",
        legacy_outcome=status.legacy_outcome,
        begun_elsewhere=status.begun_elsewhere,
    ),
    auxiliary=children.auxiliary_objects,
    diagnosis=Diagnosis(exit_note=_exit_note),
    template_source=TemplateSource(
        kinds=tuple(RUNTIME_KINDS.values()),
        reference=_reference,
        snapshot=_snapshot,
        read=read_with_runtime,
        missing_reason="TrainJobResourcesCreationFailed",
        shipped=_shipped,
    ),
)
