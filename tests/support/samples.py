"""One good job of each kind, as small as it may be, with room for what a test wants to change.

Rules for this file: every builder has defaults that make a legal object, and returns a new one each time.
"""

from __future__ import annotations

from typing import Any

from tests.model.simulated_job import UID
from tests.support.builders import tfjob
from trainyard import kinds
from trainyard.objects import Json

GPU = "nvidia.com/gpu"
KINDS_WITH_TEMPLATES = tuple(kind for kind in kinds.KINDS if kind.template_source is None)
ALL_WITH_TEMPLATES = tuple(kind for kind in kinds.ALL if kind.template_source is None)
"""The kinds with pod templates in the spec. TrainJob has none: its pods are those of a runtime, and its definition and
rules are compared with Trainer's own (tests/kinds/trainjob)."""


def pods(container: str, image: str = "example/train:1", **spec: Any) -> Json:
    """A pod template with one container; `spec` is merged into the pod spec."""
    return {"spec": {"containers": [{"name": container, "image": image}], **spec}}


def job_of(api_version: str, kind: str, spec: Json, name: str = "example") -> Json:
    """A stored job."""
    meta = {"name": name, "namespace": "default", "uid": UID, "resourceVersion": "1"}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def mx_set(kind: str, count: int = 1, **fields: Any) -> Json:
    """One item of an MxJob's `replicaSpecs`."""
    template = pods("mxnet", restartPolicy="OnFailure")
    return {"mxReplicaType": kind, "replicas": count, "template": template, **fields}


def mxjob(*items: Json, name: str = "example", **spec: Any) -> Json:
    """An MxJob in dist mode; without items it has a SCHEDULER, a SERVER and two WORKERs. Its RuntimeId is stored."""
    listed = list(items) or [mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", 2)]
    whole = {"RuntimeId": "1kkf", "jobMode": "dist", "replicaSpecs": listed, **spec}
    return job_of("mlkube.io/v1beta1", "MxJob", whole, name)


def worker_set(count: int | None = 2, **fields: Any) -> Json:
    """One worker set of a ChainerJob."""
    size = {} if count is None else {"replicas": count}
    return {**size, "template": pods("chainer"), **fields}


def chainerjob(sets: Json | None = None, name: str = "example", master: Json | None = None, **spec: Any) -> Json:
    """A ChainerJob; without sets it has one of two workers, ws0."""
    worker_sets = {"ws0": worker_set()} if sets is None else sets
    whole = {"backend": "mpi", "master": master or {"template": pods("chainer")}, "workerSets": worker_sets, **spec}
    return job_of("kubeflow.org/v1alpha1", "ChainerJob", whole, name)


def elasticjob(count: int | None = 2, name: str = "example", worker: Json | None = None, **spec: Any) -> Json:
    """An ElasticJob of two workers under ExitCode; `worker` changes its replica set."""
    size = {} if count is None else {"replicas": count}
    whole = {**size, "restartPolicy": "ExitCode", "template": pods("elasticjob-worker"), **(worker or {})}
    return job_of(
        "elastic.pytorch.org/v1alpha1",
        "ElasticJob",
        {"rdzvEndpoint": "etcd-service:2379", "replicaSpecs": {"Worker": whole}, **spec},
        name,
    )


def kubeflow_job(kind: str, name: str = "example", run_policy: Json | None = None, **fields: Any) -> Json:
    """A job of `kubeflow.org/v1`. A field named after a role has its number of replicas, or its replica set without
    the template; further fields are fields of the spec. Without roles it has those of KUBEFLOW_ROLES."""
    replicas_field, container, defaults = KUBEFLOW_ROLES[kind]
    roles = {role: fields.pop(role) for role in ROLES if role in fields}
    sets = {
        role: {"template": pods(container), **(value if isinstance(value, dict) else {"replicas": value})}
        for role, value in (roles or defaults).items()
    }
    policy = {} if run_policy is None else {"runPolicy": run_policy}
    return job_of("kubeflow.org/v1", kind, {replicas_field: sets, **policy, **fields}, name)


ROLES = ("Master", "Launcher", "Chief", "PS", "Worker", "Evaluator")
KUBEFLOW_ROLES: dict[str, tuple[str, str, dict[str, int]]] = {
    "TFJob": ("tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": 2}),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", {"Worker": 2}),
    "JAXJob": ("jaxReplicaSpecs", "jax", {"Worker": 2}),
    "MPIJob": ("mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}),
}
"""Kind -> the field with the replica sets, the name of the main container, the roles of a sample."""


def sample(kind: str) -> Json:
    """A good job of that kind. Exit codes from 128 on are retried."""
    if kind in KUBEFLOW_ROLES:
        sets: dict[str, Any] = {
            role: {"replicas": count, "restartPolicy": "ExitCode"} for role, count in KUBEFLOW_ROLES[kind][2].items()
        }
        return kubeflow_job(kind, **sets)
    return {
        "TfJob": tfjob(),
        "MxJob": mxjob(),
        "ChainerJob": chainerjob(),
        "ElasticJob": elasticjob(),
        "TrainJob": trainjob(),
    }[kind]


def trainjob(name: str = "example", runtime: str = "torch-distributed", nodes: int = 2, **spec: Any) -> Json:
    """A TrainJob of a runtime that Trainer ships."""
    whole = {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes}, **spec}
    return job_of("trainer.kubeflow.org/v1alpha1", "TrainJob", whole, name)
