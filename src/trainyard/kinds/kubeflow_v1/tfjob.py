"""TFJob, `kubeflow.org/v1`: distributed TensorFlow through TF_CONFIG."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from msgspec import Meta

from trainyard.core import Job, RestartScope, Rule, Slot
from trainyard.core.kind import Diagnosis
from trainyard.kinds.kubeflow_v1 import scripts
from trainyard.kinds.kubeflow_v1.framework import MASTER, WORKER, Framework, all_of, replica_name, total_replicas
from trainyard.kinds.kubeflow_v1.job import training_job
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import ReplicaMap, TrainingSpec
from trainyard.kinds.tensorflow_diagnosis import OUTPUT_PATTERNS
from trainyard.objects import Json

PS, CHIEF, EVALUATOR = "PS", "Chief", "Evaluator"
CHIEFS = (CHIEF, MASTER)


class TFJobSpec(TrainingSpec, kw_only=True):
    """A TensorFlow job: workers, parameter servers, a chief and evaluators."""

    tfReplicaSpecs: Annotated[
        ReplicaMap, Meta(description="PS, Worker, Chief, Master (an older name of Chief) and Evaluator.")
    ]
    successPolicy: Annotated[
        Literal["", "AllWorkers"] | None,
        Meta(description="Without a chief the job succeeds with Worker 0; AllWorkers: with all workers."),
    ] = None
    enableDynamicWorker: Annotated[
        bool | None, Meta(description="Workers may come and go: each sees itself and the parameter servers only.")
    ] = None


RULES = (
    Rule(
        "spec.tfReplicaSpecs",
        "self.filter(r, r.matches('(?i)^(chief|master)$')).size() <= 1",
        lambda roles, old: sum(role.lower() in ("chief", "master") for role in roles) <= 1,
        "must not have more than 1 Chief or Master role",
    ),
)


def chief_of(job: Job) -> str:
    """Chief or Master, whichever the job has; "" without one, or with none of its replicas."""
    return next((name for name in CHIEFS if (role := job.role(name)) and role.replicas), "")


def is_dynamic(job: Job) -> bool:
    """Whether `enableDynamicWorker` is set: workers may come and go."""
    return job.parsed.spec.get("enableDynamicWorker") is True


def environment(job: Job, slot: Slot) -> list[Json]:
    """TF_CONFIG, unless the job is a single replica."""
    return [variable("TF_CONFIG", tf_config(job, slot))] if total_replicas(job) != 1 else []


def tf_config(job: Job, slot: Slot) -> str:
    """The cluster and the replica's place in it. A dynamic worker knows itself and the parameter servers, a dynamic
    parameter server itself."""
    task = {"type": slot.role.lower(), "index": slot.index}
    addresses = {role.name.lower(): _addresses(job, role.name) for role in job.roles}
    if not is_dynamic(job):
        cluster: Json = dict(sorted(addresses.items()))
        return _compact({"cluster": cluster, "task": task, "environment": "cloud"})
    worker, servers = {}, []
    if slot.role == PS:
        servers = [addresses["ps"][slot.index]]
    elif slot.role == WORKER:
        worker, servers = {str(slot.index): addresses["worker"][slot.index]}, addresses.get("ps", [])
    return _compact({"cluster": {"worker": worker, "ps": servers}, "task": task})


def _addresses(job: Job, role_name: str) -> list[str]:
    role = job.role(role_name)
    host = f"{job.key.namespace}.svc"
    count, port = (role.replicas, role.port) if role else (0, 0)
    return [f"{replica_name(job, role_name, index)}.{host}:{port}" for index in range(count)]


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def success_sets(job: Job) -> tuple[frozenset[Slot], ...]:
    """The chief; without one Worker 0, or all workers with successPolicy AllWorkers."""
    if chief := chief_of(job):
        return (all_of(chief, job),)
    workers = all_of(WORKER, job)
    if job.parsed.spec.get("successPolicy") == "AllWorkers":
        return (workers,)
    return (frozenset({Slot(WORKER, 0)}) & workers, workers)


FRAMEWORK = Framework(
    kind="TFJob",
    spec_type=TFJobSpec,
    replicas_field="tfReplicaSpecs",
    roles=(CHIEF, EVALUATOR, MASTER, PS, WORKER),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart_policy="Never",
    environment=environment,
    diagnosis=Diagnosis(output_patterns=OUTPUT_PATTERNS),
    success_sets=success_sets,
    leading_role=lambda job: chief_of(job) or WORKER,
    restart_scope=lambda job: RestartScope.SLOT,  # TensorFlow's servers take a restarted task back
    restart_text="a failed replica is created again alone",
    rules=RULES,
    serving_roles=frozenset({PS}),
    all_meet=False,  # of parameter servers and workers some can begin
    main_container_only=True,
    ignores_failure=lambda job, slot: is_dynamic(job) and slot.role == WORKER,
    selector_in_status=False,
    qualified=lambda job: True,
    failed_text="{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed.",
    scripts=scripts.TENSORFLOW,
)
TFJOB = training_job(FRAMEWORK)
