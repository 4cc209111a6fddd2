"""TfJob, `tensorflow.org/v1alpha1`: MASTER, WORKER and PS as batch Jobs, TF_CONFIG, a default PS, TensorBoard.

Prior art: the TfJob README and the behaviour of tensorflow/k8s in November 2017, without its defects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trainyard.core import (
    JOB_CARRIER,
    Api,
    AuxiliaryObject,
    Job,
    Kind,
    Lifecycle,
    Outcome,
    ParsedSpec,
    PodRecipe,
    RoleTable,
    Slot,
    StatusShape,
    with_aliases,
)
from trainyard.core.kind import Diagnosis
from trainyard.kinds import default_ps, replica_list
from trainyard.kinds.native_gang import with_native_gangs
from trainyard.kinds.pods.accelerators import add_accelerators
from trainyard.kinds.pods.services import headless_service
from trainyard.kinds.pods.templates import append_env, containers_of, copy_template, labels_metadata_of
from trainyard.kinds.policies import policy_of
from trainyard.kinds.spec_problems import spec_problems, unknown_fields
from trainyard.kinds.tensorboard import tensorboard
from trainyard.kinds.tensorflow_diagnosis import OUTPUT_PATTERNS
from trainyard.kinds.tfjob.spec import (
    CHIEF,
    CONTAINER,
    FIELD_ALIASES,
    IMAGE,
    MASTER,
    PORT,
    PS,
    RULES,
    RULES_AFTER_START,
    TfJobSpec,
)
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CONFIG_MAP, DEPLOYMENT, JOB, POD, SERVICE

_rules = with_aliases(RULES, FIELD_ALIASES)


def read(spec: Json, name: str) -> ParsedSpec:
    """The ParsedSpec of a TfJob, with defaults that the schema cannot express. Problems are in the old order."""
    defaulted = {**spec, "tfImage": spec.get("tfImage") or IMAGE}
    defaulted = replica_list.with_defaults(defaulted, lambda item: _with_defaults(item, defaulted["tfImage"]))
    return ParsedSpec(
        roles=replica_list.roles_of(defaulted, "tfReplicaType", "tfPort"),
        policy=policy_of(spec),
        spec=defaulted,
        problems=spec_problems(TfJobSpec, _rules, spec, name),
        unknown=unknown_fields(TfJobSpec, spec),
    )


def _with_defaults(item: Json, image: str) -> Json:
    replica_type = item.get("tfReplicaType") or MASTER
    defaulted = {
        **item,
        "replicas": _value_or_default(item.get("replicas"), 1),
        "tfPort": _value_or_default(item.get("tfPort"), PORT),
        "tfReplicaType": replica_type,
    }
    needs_template = replica_type == PS and item.get("template") is None
    defaulted["IsDefaultPS"] = needs_template or item.get("IsDefaultPS") is True
    return {**defaulted, "template": default_ps.default_template(image)} if needs_template else defaulted


def _value_or_default(value: Any, default: int) -> Any:
    return default if value is None else value


def child_name(job: Job, slot: Slot) -> str:
    """The name of the Job of a slot."""
    return f"{slot.role.lower()}-{job.runtime_id}-{slot.index}"


def job_labels(job: Job) -> dict[str, str]:
    """The labels of all objects of the job."""
    return {"tensorflow.org": "", "runtime_id": job.runtime_id, "tf_job_name": job.key.name}


def child_labels(job: Job, slot: Slot) -> dict[str, str]:
    """The labels of the Job of a slot, and of its pod."""
    return {**job_labels(job), "job_type": slot.role, "task_index": str(slot.index)}


class ClusterSpec(msgspec.Struct, frozen=True):
    """The addresses of all replicas by task type, sorted by type as in the old operator."""

    addresses: Mapping[str, tuple[str, ...]]
    text: str  # the addresses as JSON, for TF_CONFIG


def cluster_spec(job: Job) -> ClusterSpec:
    """The cluster spec of the job, as TF_CONFIG has it."""
    tasks = ((task_type_of(job, role.name), role.name.lower(), role.replicas, role.port) for role in job.roles)
    return _cluster_of_tasks(job.runtime_id, tuple(sorted(tasks)))


def task_type_of(job: Job, role: str) -> str:
    """The task type of a role in TF_CONFIG. The MASTER's host name does not depend on it."""
    is_chief = role == MASTER and job.parsed.spec.get("masterTaskType") == CHIEF
    return CHIEF if is_chief else role.lower()


@lru_cache(maxsize=256)
def _cluster_of_tasks(runtime_id: str, tasks: tuple[tuple[str, str, int, int], ...]) -> ClusterSpec:
    """Cached, because every child of a job has the addresses of all. `tasks`: (type, name, replicas, port)."""
    addresses = {
        task: tuple(f"{name}-{runtime_id}-{index}:{port}" for index in range(replicas))
        for task, name, replicas, port in tasks
    }
    return ClusterSpec(addresses, json.dumps(addresses, separators=(",", ":")))


def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
    """A copy of the template with the default PS server, accelerators and TF_CONFIG.

    A TF_CONFIG of the user is kept, before the generated one.
    """
    pod_template = copy_template(template)
    job_cluster = cluster_spec(job)
    role = job.role(slot.role)
    if role and default_ps.runs_default_ps(job, role):
        default_ps.run_default_ps(pod_template, job, slot, job_cluster.addresses)
    containers = [container for container in containers_of(pod_template) if container.get("name") == CONTAINER]
    if containers:
        add_accelerators(pod_template, containers[0], job.config.accelerators)
    task = f'{{"type":"{task_type_of(job, slot.role)}","index":{slot.index}}}'
    config = f'{{"cluster":{job_cluster.text},"task":{task},"environment":"cloud"}}'
    for container in containers:
        append_env(container, ("TF_CONFIG", config))
    return pod_template


def subdomain(job: Job) -> str:
    """The name of the headless Service, through which replicas find each other."""
    return f"tfjob-{job.runtime_id}"


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The headless Service, and the objects of the default PS and of TensorBoard."""
    labels = job_labels(job)
    ports = {f"tf-port-{port}": port for port in sorted({role.port for role in job.roles})}
    service = AuxiliaryObject(SERVICE, subdomain(job), lambda: headless_service(job, labels, ports))
    return (service, *default_ps.config_map(job, labels), *tensorboard(job, labels))


def render_status(job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """The status fields in the shape of the old operator; `reason` is set only on failure."""
    phase, state = replica_list.PHASES[outcome.phase]
    return {
        "phase": phase,
        "state": state,
        "reason": outcome.message if state == "Failed" else "",
        "controlPaused": job.status.stored.get("controlPaused") is True,
        "replicaStatuses": replica_list.replica_statuses(counts, "tf_replica_type"),
    }


TFJOB = with_native_gangs(
    Kind(
        api=Api(
            gvk=GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs"),
            singular="tfjob",
            spec_type=TfJobSpec,
            read=read,
            rules=RULES,
            rules_after_start=RULES_AFTER_START,
            warnings=replica_list.policy_warnings,
            columns=replica_list.COLUMNS,
            field_aliases=FIELD_ALIASES,
            has_runtime_id=True,
        ),
        roles=RoleTable(
            carrier=lambda role: JOB_CARRIER,
            container=CONTAINER,
            child_resources=(JOB, POD, SERVICE, CONFIG_MAP, DEPLOYMENT),
        ),
        pods=PodRecipe(
            name=child_name,
            labels=child_labels,
            metadata=lambda job, slot: labels_metadata_of(job),
            subdomain=subdomain,
            mutate_pod_template=mutate_pod_template,
        ),
        lifecycle=Lifecycle(
            success_sets=lambda job: (frozenset({Slot(MASTER, 0)}),),
            on_exit=replica_list.on_exit,
        ),
        status=StatusShape(render=render_status, legacy_outcome=replica_list.legacy_outcome),
        auxiliary=auxiliary_objects,
        diagnosis=Diagnosis(
            output_patterns=OUTPUT_PATTERNS,
            condition_texts={
                "DeploymentUnavailable": (
                    "what stands beside its replicas, such as TensorBoard, does not run",
                    "mend what the message names (TensorBoard's pod is like MASTER's); the job goes on",
                )
            },
        ),
    ),
)
