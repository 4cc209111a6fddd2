"""The jobs that the tests of conversions start from."""

from __future__ import annotations

from typing import Any

from tests.support.samples import job_of, pods, sample
from trainyard import kinds
from trainyard.conversion import KUBEFLOW, TRAINJOB
from trainyard.core import Kind
from trainyard.objects import Json

OLD_KINDS = [kind for kind in kinds.ALL if kind.gvk.kind in ("TfJob", "ElasticJob", "ChainerJob")]
KUBEFLOW_KINDS = [
    kind for kind in kinds.all_versions() if kind.gvk.api_version in ("kubeflow.org/v1", "kubeflow.org/v2beta1")
]
CONVERSIONS = [
    *((kind, KUBEFLOW) for kind in OLD_KINDS),
    *((kind, TRAINJOB) for kind in (*OLD_KINDS, *KUBEFLOW_KINDS)),
]


def job(kind: Kind) -> Json:
    """A good job of a kind, without what an API server writes."""
    obj = {**sample(kind.gvk.kind), "apiVersion": kind.gvk.api_version, "metadata": {"name": "example"}}
    if kind.gvk.version == "v2beta1":  # which has no ExitCode
        for replica_set in obj["spec"]["mpiReplicaSpecs"].values():
            replica_set["restartPolicy"] = "OnFailure"
    return obj


def mpi_job(version: str, **fields: Any) -> Json:
    """An MPIJob of a launcher and two workers."""
    launcher = pods("mpi")
    launcher["spec"]["containers"][0]["command"] = ["mpirun", "-n", "2", "python", "train.py"]
    sets = {"Launcher": {"replicas": 1, "template": launcher}, "Worker": {"replicas": 2, "template": pods("mpi")}}
    obj = job_of(f"kubeflow.org/{version}", "MPIJob", {"mpiReplicaSpecs": sets, **fields})
    return {**obj, "metadata": {"name": "example"}}
