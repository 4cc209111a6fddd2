"""The jobs of a history: one of each kind, with its script in the pod templates, and when a job has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.support import samples
from tests.support.builders import replicas, tfjob
from trainyard import kinds
from trainyard.objects import Json, is_condition_true


def ended(job: Json) -> str:
    conditions = (job.get("status") or {}).get("conditions")
    return next((name for name in ("Succeeded", "Complete", "Failed") if is_condition_true(conditions, name)), "")


def is_over(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _tf_job(name: str) -> Json:
    return tfjob(replicas("MASTER"), replicas("WORKER"), RuntimeId=name[-4:])


def _mx_job(name: str) -> Json:
    return samples.mxjob(
        samples.mx_set("SCHEDULER"), samples.mx_set("SERVER"), samples.mx_set("WORKER"), RuntimeId=name[-4:]
    )


def _chainer_job(name: str) -> Json:
    return samples.chainerjob({"ws0": samples.worker_set(1)})


def _elastic_job(name: str) -> Json:
    return samples.elasticjob(2)


def _sample(kind: str, name: str) -> Json:
    return samples.sample(kind)


def _mpi_job_v2beta1(name: str) -> Json:
    launcher = {"replicas": 1, "restartPolicy": "OnFailure"}
    return {**samples.kubeflow_job("MPIJob", Launcher=launcher, Worker=2), "apiVersion": "kubeflow.org/v2beta1"}


RESTART_SCOPE = "trainyard.dev/restart-scope"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
"""Label of the pods of a TrainJob, whose templates are in its runtime."""
GANGS = ("MxJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")
"""Kinds of which all replicas begin a new attempt together, unless the annotation RESTART_SCOPE says otherwise."""
BUILDERS: dict[str, Callable[[str], Json]] = {
    "TfJob": _tf_job,
    "MxJob": _mx_job,
    "ChainerJob": _chainer_job,
    "ElasticJob": _elastic_job,
    **{kind: partial(_sample, kind) for kind in (*samples.KUBEFLOW_ROLES, "TrainJob")},
    "MPIJob v2beta1": _mpi_job_v2beta1,
}
KINDS = {kind.gvk.kind: kind for kind in kinds.KINDS} | {"MPIJob v2beta1": kinds.MPIJOB.further_versions[0]}
RESTARTS = frozenset(BUILDERS) - {"TfJob", "ChainerJob"}  # a retryable exit code begins a new attempt at once


def restarts_gang(job: Json) -> bool:
    """Whether all replicas of a job begin a new attempt together."""
    scope = (job["metadata"].get("annotations") or {}).get(RESTART_SCOPE)
    return scope == "gang" if scope else job["kind"] in GANGS


def suspended(kind: str, suspend: bool) -> Json:
    """A merge patch of a job's spec."""
    field = KINDS[kind].api.policy_field
    return {"spec": {field: {"suspend": suspend}} if field else {"suspend": suspend}}


def new_job(kind: str, name: str) -> Json:
    """A job of this kind. Its pods have its name in the annotation `script`, or in the label JOB_SET."""
    job = BUILDERS[kind](name)
    job["metadata"] = {"name": name}
    if kind in samples.KUBEFLOW_ROLES and int(name[-1]) % 2:  # a restart as the kind has it, and the other one
        job["metadata"]["annotations"] = {RESTART_SCOPE: "replica" if kind in GANGS else "gang"}
    for template in _templates(job["spec"]):
        template.setdefault("metadata", {})["annotations"] = {"script": name}
    return job


def _templates(value: object) -> list[Json]:
    """Every pod template within a spec."""
    if isinstance(value, list):
        return [template for item in value for template in _templates(item)]
    if not isinstance(value, dict):
        return []
    own = [value["template"]] if isinstance(value.get("template"), dict) else []
    return own + [template for key, item in value.items() if key != "template" for template in _templates(item)]
