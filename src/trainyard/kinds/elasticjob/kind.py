"""ElasticJob, `elastic.pytorch.org/v1alpha1`: Pods and headless Services, rendezvous arguments, scaling while it runs.

Prior art: the README of the TorchElastic controller and its behaviour at version 0.2, without its defects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.core import (
    POD_CARRIER,
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
    PlannedCreate,
    PodRecipe,
    Replica,
    RestartScope,
    Role,
    RoleTable,
    Slot,
    StatusShape,
    TemplateChange,
    default_condition_event,
)
from trainyard.core.names import digest
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.definitions import columns
from trainyard.kinds.elasticjob.diagnosis import DIAGNOSIS
from trainyard.kinds.elasticjob.scripts import SCRIPTS
from trainyard.kinds.elasticjob.spec import (
    C10D_BACKEND,
    CONTAINER,
    EXIT_CODE,
    IN_PLACE,
    NO_RENDEZVOUS,
    RULES,
    RUN_POLICIES,
    WORKER,
    ElasticJobSpec,
    replicas_of,
    worker_of,
)
from trainyard.kinds.native_gang import with_native_gangs
from trainyard.kinds.pods.templates import (
    append_to_list,
    containers_of,
    copy_template,
    has_container,
    spec_of,
    whole_number,
)
from trainyard.kinds.policies import Policies, policy_of
from trainyard.kinds.rendezvous_store import give_each_rendezvous_a_store
from trainyard.kinds.spec_problems import spec_problems, unknown_fields
from trainyard.objects import GVK, Json, Problem, Ref
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.resources import POD, SERVICE
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete

GROUP = "elastic.pytorch.org"
RETRYABLE = frozenset({130, 137, 138, 143})
"""Retryable exit codes: SIGINT, SIGKILL, SIGUSR1, SIGTERM. Other codes are permanent failures (docs/rules.md 2.4)."""
C10D_PORT = 29400
"""torchrun's default port of the c10d store."""
STORE_TIMEOUT = 900
"""Seconds that workers wait for the store of Worker 0, which may still pull its image. torch's default is 60."""


def read(spec: Json, name: str) -> ParsedSpec:
    """The ParsedSpec of an ElasticJob.

    A policy is read from `spec`, `spec.runPolicy` or `spec.RunPolicy`; the first of them that sets it is used.
    """
    run_policies = [spec[field] for field in reversed(RUN_POLICIES) if isinstance(spec.get(field), dict)]
    policies: Json = {}
    for source in (*run_policies, spec):
        policies |= {name: source[name] for name in Policies.__struct_fields__ if source.get(name) is not None}
    return ParsedSpec(
        roles=_roles(spec),
        policy=policy_of(policies),
        spec=spec,
        problems=spec_problems(ElasticJobSpec, RULES, spec, name),
        unknown=unknown_fields(ElasticJobSpec, spec),
    )


def _roles(spec: Json) -> tuple[Role, ...]:
    worker = worker_of(spec)
    template, replicas = worker.get("template"), replicas_of(spec)
    if not isinstance(template, dict) or replicas is None:
        return ()
    policy = worker.get("restartPolicy")
    containers = containers_of(template)
    first_name = str(containers[0].get("name") or "") if containers else ""
    return (
        Role(
            WORKER,
            min(max(replicas, 0), MAX_REPLICAS),
            0,
            template,
            digest(template, policy),
            container=CONTAINER if has_container(template, CONTAINER) else first_name,
        ),
    )


def child_name(job: Job, slot: Slot) -> str:
    """The name of the Pod and of the Service of a slot."""
    return f"{job.key.name}-{slot.role.lower()}-{slot.index}"


def child_labels(job: Job, slot: Slot) -> dict[str, str]:
    """The labels of the objects of a slot."""
    return {**job_labels(job), "replica-type": slot.role.lower(), "replica-index": str(slot.index)}


def job_labels(job: Job) -> dict[str, str]:
    """The labels of all objects of the job."""
    return {"group-name": GROUP, "job-name": job.key.name}


def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
    """A copy of the template with the launcher's rendezvous arguments and the restartPolicy of the spec.

    The arguments precede the user's: arguments after the name of the script are arguments of the script (rules.md 3.1).
    """
    pod_template = copy_template(template)
    role = job.role(slot.role)
    arguments = rendezvous_arguments(job, slot)
    for container in containers_of(pod_template):
        if role and arguments and container.get("name") == role.container:
            append_to_list(container, "args", *arguments, first=True)
            give_each_rendezvous_a_store(container, str(job.parsed.spec.get("rdzvBackend")))
    policy = worker_of(job.parsed.spec).get("restartPolicy")
    pod_template["spec"]["restartPolicy"] = policy if policy in IN_PLACE else "Never"
    return pod_template


def rendezvous_arguments(job: Job, slot: Slot) -> list[str]:
    """The rendezvous arguments of a launcher; [] with rdzvBackend: none."""
    spec, resumes = job.parsed.spec, job.status.resume_count
    backend = spec.get("rdzvBackend") or "etcd"
    if backend == NO_RENDEZVOUS:
        return []
    min_nodes, max_nodes = (
        whole_number(spec.get(name)) or replicas_of(spec) for name in ("minReplicas", "maxReplicas")
    )
    # A rendezvous id stays closed after its run, so a resumed job needs a new id (S35).
    run_id = f"{job.key.name}-r{resumes}" if resumes else job.key.name
    return [
        f"--rdzv_backend={backend}",
        f"--rdzv_endpoint={endpoint_of(job)}",
        f"--rdzv_id={run_id}",
        f"--nnodes={min_nodes}:{max_nodes}",
        *_store_options(spec, slot),
    ]


def scale_bounds(job: Job) -> tuple[int | None, int | None]:
    """minReplicas and maxReplicas, None where unset."""
    spec = job.parsed.spec
    return whole_number(spec.get("minReplicas")), whole_number(spec.get("maxReplicas"))


def endpoint_of(job: Job) -> str:
    """host:port of the rendezvous: spec.rdzvEndpoint, or for c10d without it the Service of Worker 0."""
    spec = job.parsed.spec
    if spec.get("rdzvBackend") == C10D_BACKEND and not spec.get("rdzvEndpoint"):
        return f"{child_name(job, Slot(WORKER, 0))}:{C10D_PORT}"
    return str(spec.get("rdzvEndpoint"))


def _store_options(spec: Json, slot: Slot) -> list[str]:
    """Whether this worker hosts the c10d store. torch would compare host names, which all pods of one machine share."""
    if spec.get("rdzvBackend") != C10D_BACKEND or spec.get("rdzvEndpoint"):
        return []
    return [f"--rdzv_conf=is_host={int(slot.index == 0)},read_timeout={STORE_TIMEOUT}"]


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """A headless Service for each replica, so that other replicas can resolve its host name."""
    return tuple(
        AuxiliaryObject(SERVICE, child_name(job, slot), _service_body(job, slot), slot=slot) for slot in job.slots()
    )


def _service_body(job: Job, slot: Slot) -> Any:
    labels = child_labels(job, slot)
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
    return lambda: {"apiVersion": "v1", "kind": "Service", "metadata": {"labels": dict(labels)}, "spec": dict(spec)}


def on_exit(job: Job, slot: Slot, code: int, reason: str) -> ExitAction:
    """The effect of the failed exit of a Pod (S23, docs/rules.md 2.8).

    With restartPolicy ExitCode the exit code decides; with any other policy every failed Pod fails the job. When the
    spec is invalid, its restartPolicy is unknown: then retryable exit codes do not fail the job (S11).
    """
    policy = EXIT_CODE if job.parsed.problems else worker_of(job.parsed.spec).get("restartPolicy")
    return ExitAction.RETRY if policy == EXIT_CODE and code in RETRYABLE else ExitAction.FAIL


def render_status(job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """Status fields; `replicaStatuses` as in the old operator, without counts of zero (docs/rules.md 2.2)."""
    count_fields = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    selector = ",".join(f"{key}={value}" for key, value in {**job_labels(job), "replica-type": "worker"}.items())
    return {
        "state": "Failed" if outcome.phase == "Invalid" else outcome.phase,
        "replicaStatuses": {
            role: {field: states[state] for field, state in count_fields.items() if states.get(state)}
            for role, states in counts.items()
        },
        "labelSelector": selector,
    }


_UNREACHABLE = lazy_pattern(
    r"EtcdConnectionFailed|RendezvousConnectionError|RendezvousTimeoutError|EtcdException|[Cc]onnection refused"
    r"|[Nn]ame or service not known|[Nn]ame resolution|[Nn]o route to host|Max retries exceeded"
)


def rendezvous_advice(job: Job, text: str) -> str:
    """What to do about a failed rendezvous, from the message of the condition; "" when the message shows none."""
    endpoint = endpoint_of(job)
    if _UNREACHABLE.search(text):
        if job.parsed.spec.get("rdzvBackend") == C10D_BACKEND:
            return f"the rendezvous at {endpoint} cannot be reached: see why the worker that holds it does not run"
        return f"the rendezvous at {endpoint} cannot be reached: see that an etcd server with the v2 API serves there"
    if "RendezvousClosed" in text:
        return f"the rendezvous at {endpoint} is closed, by a job of this name that has ended: use another name"
    return ""


def condition_message(job: Job, update: ConditionUpdate, replicas: Sequence[Replica]) -> ConditionUpdate:
    """The condition with the exact reason and text of the old operator, then details (docs/rules.md 2.2, S7)."""
    name, plain_name = f"ElasticJob {job.key.name}", f"Job {job.key.name}"
    failed = sum(replica.termination is not None and not replica.termination.disrupted for replica in replicas)
    count = f"because {failed} {WORKER} replica(s) failed."
    texts = {
        "Created": ("ElasticJobCreated", f"{name} is created."),
        "Running": ("ElasticJobRunning", f"{name} is running."),
        "Restarting": ("ElasticJobRestarting", f"{name} is restarting {count}" if failed else f"{name} is restarting."),
        "Succeeded": ("ElasticJobSucceeded", f"{name} is successfully completed."),
        "PermanentFailure": ("ElasticJobFailed", f"{name} is failed {count}"),
        "BackoffLimitExceeded": (
            "",
            f"{plain_name} has failed because it has reached the specified backoff limit",
        ),
        "DeadlineExceeded": ("", f"{plain_name} has failed because it was active longer than specified deadline"),
    }
    reason, text = texts.get(update.reason if update.type == "Failed" else update.type, ("", ""))
    if not text:
        return update
    is_normal = update.type in ("Created", "Running", "Succeeded")
    message = update.message.partition("; ")[2] if is_normal else update.message
    details = "; ".join(filter(None, (message, "" if is_normal else rendezvous_advice(job, message))))
    separator = " " if text.endswith(".") else "; "
    return ConditionUpdate(update.type, reason or update.reason, separator.join(filter(None, (text, details))))


def condition_event(job: Job, update: ConditionUpdate) -> Event | None:
    """No event for Created and Running; the reason JobFailed for both limits, as documented (docs/rules.md 2.9)."""
    if update.type in ("Created", "Running"):
        return None
    event = default_condition_event(update)
    if update.type == "Failed" and update.reason in ("BackoffLimitExceeded", "DeadlineExceeded"):
        return replace(event, reason="JobFailed")
    return event


def write_events(job: Job, write_or_replica: PlannedCreate | Delete | Replica) -> tuple[Event, ...]:
    """An event for each Pod and Service created or deleted, and for each Pod that failed (docs/rules.md 2.9)."""
    if isinstance(write_or_replica, Replica):
        termination, pod = write_or_replica.termination, write_or_replica.child
        exit_code = termination.exit_code if termination else -1
        text = f"Pod: {job.key.namespace}.{pod.name if pod else '?'} exited with code {exit_code}"
        return (Event("Normal", "ExitedWithCode", text),) if exit_code >= 0 else ()
    kind, verb = write_or_replica.gvk.kind, ("Created" if isinstance(write_or_replica, PlannedCreate) else "Deleted")
    if write_or_replica.gvk == job.kind.gvk:
        return (Event("Normal", "SuccessfulDeleteJob", f"Deleted job: {write_or_replica.name}"),)
    reason = f"Successful{verb.removesuffix('d')}{kind}"
    involved_object = write_or_replica.ref if isinstance(write_or_replica, PlannedCreate) else None
    event = Event("Normal", reason, f"{verb} {kind.lower()}: {write_or_replica.name}", involved_object)
    return (*_restart_policy_event(job, write_or_replica), event)


def _restart_policy_event(job: Job, fact: PlannedCreate | Delete) -> tuple[Event, ...]:
    """A warning event for a created Pod whose template has a restartPolicy, which the job's restartPolicy overrides."""
    template_policy = spec_of(worker_of(job.parsed.spec).get("template")).get("restartPolicy")
    if not isinstance(fact, PlannedCreate) or fact.gvk != POD or not template_policy:
        return ()
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    return (Event("Warning", "SettedPodTemplateRestartPolicy", text, Ref("Pod", fact.name)),)


def warnings(job: Job) -> tuple[Problem, ...]:
    """Warnings about fields that have no effect, or not the expected one."""
    spec, problems = job.parsed.spec, []
    template = worker_of(spec).get("template")
    policy = worker_of(spec).get("restartPolicy")
    path = f"spec.replicaSpecs.{WORKER}"
    if spec_of(template).get("restartPolicy"):
        text = f"is ignored; write {path}.restartPolicy"
        problems.append(Problem(f"{path}.template.spec.restartPolicy", text))
    if policy == "Always":
        text = "starts a worker again that ended with 0, so the job never ends; write ExitCode, OnFailure or Never"
        problems.append(Problem(f"{path}.restartPolicy", text))
    if len(containers_of(template)) > 1 and not has_container(template, CONTAINER):
        text = f"the first container gets the rendezvous arguments; name the right one {CONTAINER}"
        problems.append(Problem(f"{path}.template.spec.containers", text))
    if spec.get("rdzvBackend") == NO_RENDEZVOUS and spec.get("rdzvEndpoint"):
        problems.append(Problem("spec.rdzvEndpoint", "has no effect with rdzvBackend: none; leave one of them out"))
    if spec.get("schedulingPolicy"):
        problems.append(Problem("spec.schedulingPolicy", "has no effect; leave it out"))
    return tuple(problems)


ELASTICJOB = with_native_gangs(
    Kind(
        api=Api(
            gvk=GVK(GROUP, "v1alpha1", "ElasticJob", "elasticjobs"),
            singular="elasticjob",
            spec_type=ElasticJobSpec,
            read=read,
            rules=RULES,
            warnings=warnings,
            columns=(
                columns.STATE,
                {"name": "Min", "type": "integer", "jsonPath": ".spec.minReplicas"},
                {"name": "Max", "type": "integer", "jsonPath": ".spec.maxReplicas"},
                {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicaSpecs.Worker.replicas"},
                columns.READY,
                columns.RESTARTS,
                columns.AGE,
                {"name": "rdzvEndpoint", "type": "string", "jsonPath": ".spec.rdzvEndpoint", "priority": 1},
                columns.REASON,
                columns.BLOCKED,
            ),
            scale={
                "specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
                "labelSelectorPath": ".status.labelSelector",
            },
            scale_bounds=scale_bounds,
        ),
        roles=RoleTable(carrier=lambda role: POD_CARRIER, container=CONTAINER, child_resources=(POD, SERVICE)),
        pods=PodRecipe(name=child_name, labels=child_labels, mutate_pod_template=mutate_pod_template),
        lifecycle=Lifecycle(
            success_sets=lambda job: (frozenset(job.slots()),),  # all workers
            on_exit=on_exit,
            restart_scope=RestartScope.SLOT,
            default_backoff_limit=None,
            template_change=TemplateChange.NEW_REPLICAS,
        ),
        status=StatusShape(
            render=render_status,
            source="elastic-job-controller",
            condition_message=condition_message,
            condition_event=condition_event,
            write_events=write_events,
            extra_timestamps=("lastUpdateTime",),
        ),
        auxiliary=auxiliary_objects,
        diagnosis=DIAGNOSIS,
        scripts=SCRIPTS,
    ),
    min_members=lambda job: whole_number(job.parsed.spec.get("minReplicas")),
)
