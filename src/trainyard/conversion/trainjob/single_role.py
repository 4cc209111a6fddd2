"""Jobs whose replicas all run one template: PyTorchJob, JAXJob, XGBoostJob.

A runtime that Trainer ships is enough when the pod template has only what a TrainJob can set itself: image, command,
arguments, variables and resources in `spec.trainer`, volumes, scheduling and security in `spec.runtimePatches`.
Otherwise the job gets a TrainingRuntime of its own, with the whole pod template.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainyard.conversion.differences import differing_paths
from trainyard.conversion.template_edits import add_variables, main_container
from trainyard.conversion.trainjob.pod_references import follow_pods
from trainyard.conversion.trainjob.replicated_jobs import (
    ANCESTOR,
    NODE,
    JobSource,
    ReplicaSet,
    check_name,
    has_default_restarts,
    job_spec,
    note_backoff,
)
from trainyard.conversion.trainjob.runtimes import train_job, training_runtime
from trainyard.objects import Json, Problem

MANAGER = "trainyard.dev/convert"
TRAINER_FIELDS = ("image", "command", "args", "env")
PATCHABLE_CONTAINER_FIELDS = ("volumeMounts", "securityContext")
PATCHABLE_POD_FIELDS = (
    *("serviceAccountName", "volumes", "imagePullSecrets", "securityContext", "nodeSelector", "affinity"),
    *("tolerations", "schedulingGates", "terminationGracePeriodSeconds"),
)


class TrainerJob(msgspec.Struct, frozen=True):
    """What a kind tells about its TrainJob. `runtime`: the one that Trainer ships. `framework`: its label, and the
    field of mlPolicy. `reserved`: names or prefixes of variables that Trainer sets itself and refuses in a job."""

    runtime: str
    framework: str
    variables: list[Json]
    reserved: tuple[str, ...] = ()
    processes: int | None = None  # numProcPerNode


def single_role_job(source: JobSource, replica_sets: dict[str, ReplicaSet], trainer: TrainerJob) -> list[Json]:
    """The TrainJob, after its TrainingRuntime if it needs one. The replica sets are not empty."""
    first, *others = replica_sets.values()
    for other in others:
        _report_differences(source, first, other)
    nodes = sum(replica_set.replicas for replica_set in replica_sets.values())
    check_name(source, {NODE: nodes})
    note_backoff(source, replica_sets)
    roles, counts = list(replica_sets), [replica_set.replicas for replica_set in replica_sets.values()]
    follow_pods(source, replica_sets, lambda role, index: (NODE, sum(counts[: roles.index(role)]) + index))
    container = main_container(first.template, NODE)
    _drop_reserved(source, first, container, trainer.reserved)
    if trainer.variables:
        add_variables(container, trainer.variables)
    container_fields = {name: container.pop(name) for name in TRAINER_FIELDS if container.get(name)}
    trainer_spec: Json = {"numNodes": nodes}
    trainer_spec |= {"numProcPerNode": trainer.processes} if trainer.processes is not None else {}
    trainer_spec |= container_fields
    if resources := container.pop("resources", None):
        trainer_spec["resourcesPerNode"] = resources
    patch = _patch_of(first, container)
    if patch is None or source.policy.needs_runtime or not has_default_restarts(first):
        return _with_own_runtime(source, first, trainer, trainer_spec)
    patches = [_runtime_patch(patch)] if patch else []
    return [train_job(source, trainer.runtime, trainer=trainer_spec, runtimePatches=patches)]


def _with_own_runtime(
    source: JobSource, replica_set: ReplicaSet, trainer: TrainerJob, trainer_spec: Json
) -> list[Json]:
    # Trainer requires an image in the runtime, and replaces it by that of the TrainJob.
    container = main_container(replica_set.template, NODE)
    container["image"] = trainer_spec.get("image")
    job = {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": job_spec(replica_set, source.policy.backoff_limit)}
    runtime = training_runtime(
        source,
        [{"name": NODE, "template": job}],
        ml_policy={"numNodes": 1, trainer.framework: {}},
        framework=trainer.framework,
    )
    return [runtime, train_job(source, trainer=trainer_spec)]


def _patch_of(replica_set: ReplicaSet, container: Json) -> Json | None:
    """The pod template's part of runtimePatches, {} when none is needed; None when a patch cannot express it.
    `container`: the main container without the fields that are in `spec.trainer`."""
    template = replica_set.template
    pod_spec = {name: value for name, value in template["spec"].items() if name != "containers"}
    is_patchable = (
        len(template["spec"]["containers"]) == 1
        and set(pod_spec) <= set(PATCHABLE_POD_FIELDS)
        and set(container) <= {"name", *PATCHABLE_CONTAINER_FIELDS}
        and set(template) <= {"metadata", "spec"}
        and set(template.get("metadata") or {}) <= {"labels", "annotations"}
    )
    if not is_patchable:
        return None
    containers = [container] if set(container) != {"name"} else []
    spec = {**pod_spec, **({"containers": containers} if containers else {})}
    metadata = template.get("metadata")
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def _runtime_patch(pod_template: Json) -> Json:
    job = {"name": NODE, "template": {"spec": {"template": pod_template}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def _report_differences(source: JobSource, first: ReplicaSet, other: ReplicaSet) -> None:
    text = f"differs from {first.path}, whose template all nodes of a TrainJob run; make them equal"
    if other.restart_policy != first.restart_policy:
        source.spec.report.unmapped.append(Problem(f"{other.path}.restartPolicy", text))
    for path in differing_paths(other.template, first.template):
        source.spec.report.unmapped.append(Problem(f"{other.path}.template.{path}", text))


def _drop_reserved(source: JobSource, replica_set: ReplicaSet, container: Json, reserved: tuple[str, ...]) -> None:
    """Remove variables that Trainer refuses. Both operators set them, whatever the job says."""
    env: list[Any] = container.get("env") or []
    for variable in env:
        if str(variable.get("name")).startswith(reserved):
            text = f"{variable['name']} is left out: Trainer sets it"
            source.spec.report.notes.append(Problem(f"{replica_set.path}.template.spec.containers", text))
    if env and reserved:
        container["env"] = [variable for variable in env if not str(variable.get("name")).startswith(reserved)]
