"""ChainerJob, `kubeflow.org/v1alpha1`: a master Job that starts MPI, and a StatefulSet for each worker set.

Prior art: the chainer-operator README and its behaviour in June 2018, without its defects. MPI starts processes in the
workers with the `exec` subresource of pods, through files/kubexec.py and with the service account of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainyard.core import (
    RETRYING_JOB_CARRIER,
    STATEFUL_SET_CARRIER,
    Api,
    AuxiliaryObject,
    ConditionUpdate,
    Event,
    ExitAction,
    Job,
    Kind,
    Lifecycle,
    Outcome,
    ParsedSpec,
    PodRecipe,
    Policy,
    Replica,
    Role,
    RoleTable,
    Slot,
    StatusShape,
    TemplateChange,
    WorkloadAdapter,
    default_condition_event,
)
from trainyard.core.diagnosis import OutputPattern
from trainyard.core.kind import Diagnosis
from trainyard.core.names import digest
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.chainerjob import mpi
from trainyard.kinds.chainerjob.scripts import SCRIPTS
from trainyard.kinds.chainerjob.spec import (
    CONTAINER,
    GPU,
    MASTER,
    RULES,
    RULES_AFTER_START,
    ChainerJobSpec,
    stateful_set_name,
    with_container_names,
    worker_sets_of,
)
from trainyard.kinds.definitions import columns
from trainyard.kinds.mpi_output import DOUBTS, NOT_STARTED, NOT_STARTED_TEXT, PATTERNS
from trainyard.kinds.native_gang import with_native_gangs
from trainyard.kinds.pods.templates import containers_of, copy_template, labels_metadata_of, spec_of, whole_number
from trainyard.kinds.policies import policy_of
from trainyard.kinds.spec_problems import spec_problems, unknown_fields
from trainyard.objects import GVK, Json, Problem, Ref
from trainyard.objects.resources import CONFIG_MAP, JOB, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET
from trainyard.objects.structs import replace

LABEL = "chainerjob.kubeflow.org/"


def read(spec: Json, name: str) -> ParsedSpec:
    """The ParsedSpec of a ChainerJob. The master Job has the backoff limit and deadline, the policy none (S4)."""
    return ParsedSpec(
        roles=_roles(spec),
        policy=_policy(spec),
        spec=spec,
        problems=spec_problems(ChainerJobSpec, RULES, spec, name),
        unknown=unknown_fields(ChainerJobSpec, spec),
    )


def _policy(spec: Json) -> Policy:
    policy = policy_of(spec)
    # As documented: once the master has finished, the worker sets are scaled to 0 (S3).
    return replace(
        policy, clean_pod_policy=policy.clean_pod_policy or "Running", active_deadline_seconds=None, backoff_limit=None
    )


def _roles(spec: Json) -> tuple[Role, ...]:
    master = spec.get("master")
    roles = []
    if isinstance(master, dict):
        template = _template(master)
        roles.append(Role(MASTER, 1, 0, template, digest(template, slots_of(master), job_limits(spec))))
    for name, worker_set in worker_sets_of(spec).items():
        replicas = whole_number(worker_set.get("replicas"))
        count = 1 if replicas is None else min(max(replicas, 0), MAX_REPLICAS)
        template = _template(worker_set)
        roles.append(Role(name, count, 0, template, digest(template, slots_of(worker_set))))
    return tuple(roles)


def _template(master_or_set: Json) -> Json:
    template = master_or_set.get("template")
    return template if isinstance(template, dict) else {}


def slots_of(part: Json) -> int:
    """MPI slots in each pod: `mpiConfig.slots`, else the GPU limit of the container chainer, else 1 (README)."""
    config = part.get("mpiConfig")
    slots = whole_number(config.get("slots") if isinstance(config, dict) else None)
    if slots is not None:
        return slots
    for container in with_container_names(containers_of(_template(part))):
        if container.get("name") == CONTAINER:
            resources = container.get("resources")
            limits = resources.get("limits") if isinstance(resources, dict) else None
            gpus = str(limits.get(GPU, "")) if isinstance(limits, dict) else ""
            return max(int(gpus), 1) if gpus.isdecimal() and len(gpus) < 10 else 1
    return 1


def job_limits(spec: Json) -> Json:
    """backoffLimit and activeDeadlineSeconds of the master Job: those of `spec.master`, else those of the spec."""
    limits = {}
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        master = spec.get("master")
        master_value = master.get(name) if isinstance(master, dict) else None
        limit = whole_number(spec.get(name) if master_value is None else master_value)
        if limit is not None:
            limits[name] = limit
    return limits


def is_distributed(job: Job) -> bool:
    """Whether the job has worker sets."""
    return any(role.name != MASTER for role in job.roles)


def carrier(role: str) -> WorkloadAdapter:
    """A batch Job for the master, a StatefulSet for a set of workers."""
    return RETRYING_JOB_CARRIER if role == MASTER else STATEFUL_SET_CARRIER


def child_name(job: Job, slot: Slot) -> str:
    """The name of the Job or StatefulSet of a slot."""
    return f"{job.key.name}-master" if slot.role == MASTER else stateful_set_name(job.key.name, slot.role)


def child_labels(job: Job, slot: Slot) -> dict[str, str]:
    """The labels of the child of a slot, and of its pods."""
    labels = {**job_labels(job), f"{LABEL}role": MASTER if slot.role == MASTER else "workerset"}
    return labels if slot.role == MASTER else {**labels, f"{LABEL}workersetname": slot.role}


def job_labels(job: Job) -> dict[str, str]:
    """The labels of all objects of the job."""
    return {f"{LABEL}name": job.key.name}


def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
    """A copy of the template with the job's service account and, in a distributed job, MPI's volumes and variables."""
    pod_template = copy_template(template)
    pod_template["spec"]["containers"] = with_container_names(containers_of(pod_template))
    pod_template["spec"]["serviceAccountName"] = mpi.service_account_name(job)
    if not is_distributed(job):
        return pod_template
    mpi.add_mpi_volumes_and_env(pod_template, job, min(_slots(job, role.name) for role in job.roles))
    if slot.role == MASTER:
        mpi.wait_for_workers(pod_template, _slots(job, MASTER))
    return pod_template


def _slots(job: Job, role: str) -> int:
    spec = job.parsed.spec
    master_or_set = spec.get("master") if role == MASTER else worker_sets_of(spec).get(role)
    return slots_of(master_or_set) if isinstance(master_or_set, dict) else 1


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The ServiceAccount, Role, RoleBinding and, for a distributed job, the ConfigMap."""
    sets = [
        mpi.WorkerStatefulSet(stateful_set_name(job.key.name, role.name), role.replicas, _slots(job, role.name))
        for role in job.roles
        if role.name != MASTER
    ]
    # A master that was created beside workers mounts the ConfigMap, and its Job may retry it after the last worker set
    # has been removed from the spec.
    started_with_sets = any(name != MASTER for name in job.status.roles)
    return mpi.auxiliary_objects(job, job_labels(job), sets, files=bool(sets) or started_with_sets)


def dependencies(job: Job, slot: Slot) -> tuple[Ref, ...]:
    """The objects that must exist before a child is created.

    A worker set needs the ServiceAccount and the ConfigMap. The master, whose account may exec into the pods of the
    worker sets, needs every auxiliary object and every StatefulSet of the job.
    """
    blocking = job.blocking_objects()
    if slot.role != MASTER:
        return tuple(ref for ref in blocking if not job.auxiliary_objects[ref].depends_on)
    sets = (
        Ref(STATEFUL_SET.kind, stateful_set_name(job.key.name, role.name)) for role in job.roles if role.name != MASTER
    )
    return (*blocking, *sets)


def render_status(job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """Status fields of a batch JobStatus: active, succeeded and failed count the pods of the master (rules.md 1.4)."""
    states = counts.get(MASTER, {})
    is_active = (
        not outcome.is_finished and outcome.phase != "Suspended" and (states.get("Running") or states.get("Starting"))
    )
    pods = {
        "active": 1 if is_active else 0,
        "succeeded": states.get("Succeeded", 0),
        "failed": job.status.role(MASTER).failures,
    }
    state = "Failed" if outcome.phase == "Invalid" else outcome.phase
    return {"state": state, **{name: count for name, count in pods.items() if count}}


def condition_message(job: Job, update: ConditionUpdate, replicas: Sequence[Replica]) -> ConditionUpdate:
    """The condition with the old operator's text first (docs/rules.md 1.9, S7)."""
    if update.type != "NameConflict":
        return update
    name = update.message.partition(":")[0].rpartition(" ")[2]
    text = f'Resource "{name}" already exists and is not managed by ChainerJob; {update.message}'
    return replace(update, message=text)


def condition_event(job: Job, update: ConditionUpdate) -> Event | None:
    """The event for a condition that became True, with the reasons of the old operator."""
    if update.type == "Created":
        return Event("Normal", "Synced", "ChainerJob synced successfully")
    event = default_condition_event(update)
    if update.type == "NameConflict":
        return replace(event, reason="ErrResourceExists")
    if update.reason == "InvalidSpec" and update.message.startswith("backend:"):
        return replace(event, reason="FailedSynced")
    return event


def warnings(job: Job) -> tuple[Problem, ...]:
    """Warnings about fields of the pod templates that the operator replaces."""
    problems = []
    for role in job.parsed.roles:
        spec = spec_of(role.template)
        path = "spec.master.template.spec" if role.name == MASTER else f"spec.workerSets.{role.name}.template.spec"
        policy, supported = spec.get("restartPolicy"), ("Never", "OnFailure") if role.name == MASTER else ("Always",)
        if policy and policy not in supported:
            replacement = "OnFailure" if role.name == MASTER else "Always"
            problems.append(Problem(f"{path}.restartPolicy", f"{policy} is not supported; {replacement} is used"))
        if spec.get("serviceAccountName"):
            text = f"is replaced by {job.key.name}-launcher, which may reach the workers"
            problems.append(Problem(f"{path}.serviceAccountName", text))
    return tuple(problems)


OUTPUT_PATTERNS = (
    *PATTERNS,
    OutputPattern(
        NOT_STARTED,
        NOT_STARTED_TEXT,
        "see that every worker runs and has orted (4.x) or prted (5.x) on PATH, and that the job's Role grants "
        "pods/exec",
        anywhere=True,
    ),
    OutputPattern(
        # A shell or a container runtime that cannot execute mpiexec is not meant.
        r"^(?!.*\b(?:sh|bash|exec): ).*"
        r"(?:MPI.*Permission denied|Permission denied \(publickey|\bORTE\b|mpi(?:run|exec)\b.*(?:unable|failed))",
        "MPI could not start its processes on the workers",
        "see that every worker runs, and that the job's Role grants pods/exec",
    ),
)

CHAINERJOB = with_native_gangs(
    Kind(
        api=Api(
            gvk=GVK("kubeflow.org", "v1alpha1", "ChainerJob", "chainerjobs"),
            singular="chainerjob",
            short_names=("chj", "chjs", "chjob", "chjobs"),
            categories=("all",),
            spec_type=ChainerJobSpec,
            read=read,
            rules=RULES,
            rules_after_start=RULES_AFTER_START,
            warnings=warnings,
            columns=(columns.STATE, columns.READY, columns.RESTARTS, columns.AGE, columns.REASON, columns.BLOCKED),
        ),
        roles=RoleTable(
            carrier=carrier,
            container=CONTAINER,
            child_resources=(JOB, POD, STATEFUL_SET, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING),
            patched_resources=(STATEFUL_SET, CONFIG_MAP, ROLE),
        ),
        pods=PodRecipe(
            name=child_name,
            labels=child_labels,
            metadata=lambda job, slot: labels_metadata_of(job),  # not of the pods (docs/rules.md 1.5)
            mutate_pod_template=mutate_pod_template,
            job_spec_fields=lambda job, slot: job_limits(job.parsed.spec),
            dependencies=dependencies,
        ),
        lifecycle=Lifecycle(
            success_sets=lambda job: (frozenset({Slot(MASTER, 0)}),),
            on_exit=lambda job, slot, code, reason: ExitAction.FAIL,
            worker_slots=lambda job: frozenset(slot for slot in job.slots() if slot.role != MASTER),
            workers_reached_by_exec=True,
            default_backoff_limit=None,
            template_change=TemplateChange.RESTART,
            template_change_of={MASTER: TemplateChange.IGNORE},
        ),
        status=StatusShape(
            render=render_status,
            source="chainer-job-controller",
            condition_message=condition_message,
            condition_event=condition_event,
            condition_aliases={"Succeeded": "Complete"},
            extra_timestamps=("lastProbeTime",),
        ),
        auxiliary=auxiliary_objects,
        diagnosis=Diagnosis(output_patterns=OUTPUT_PATTERNS, doubts=DOUBTS),
        scripts=SCRIPTS,
    ),
)
