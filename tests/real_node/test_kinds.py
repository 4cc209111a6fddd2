"""A job of each kind in containers of a real kubelet: its replicas find each other by the names and the variables that
they are given, one of them is lost, and the job goes on. All run at the same time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.real_node.stage import Stage, container, job_of, template, until
from tests.support.real_node import RealNode
from tests.support.real_node_build import MPI_5_IMAGE, MPI_IMAGE
from trainyard.objects import Json, uid_of

pytestmark = [pytest.mark.node, pytest.mark.slow]

PROGRAM = (Path(__file__).parent / "programs" / "ranks.py").read_text()
STATE = "/var/tmp/kinds"  # of the node
EXIT_CODE, ON_FAILURE = "ExitCode", "OnFailure"


def ranks(container_name: str, job: str = "", **pod: Any) -> Json:
    """The template of a replica. With the name of a job, one replica of the template is lost once."""
    main = container(container_name, "python3", "-c", PROGRAM)
    if job:
        main["env"] = [{"name": "LOST", "value": f"/state/{job}"}]
        main["volumeMounts"] = [{"name": "state", "mountPath": "/state"}]
        pod["volumes"] = [{"name": "state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}}]
    return template(main, **pod)


def kubeflow_job(kind: str, name: str, field: str, container_name: str, roles: dict[str, int]) -> Json:
    """A worker is lost. Exit codes from 128 on are retried."""
    sets = {
        role: {
            "replicas": count,
            "restartPolicy": EXIT_CODE,
            "template": ranks(container_name, name if role == "Worker" else ""),
        }
        for role, count in roles.items()
    }
    return job_of("kubeflow.org/v1", kind, name, {"runPolicy": {"cleanPodPolicy": "None"}, field: sets})


def listed_job(api_version: str, kind: str, name: str, prefix: str, lost: str, roles: dict[str, int]) -> Json:
    """A TfJob or MxJob: one replica of the role `lost` is lost."""
    container_name = {"tf": "tensorflow", "mx": "mxnet"}[prefix]
    sets = [
        {
            f"{prefix}ReplicaType": role,
            "replicas": count,
            "template": ranks(container_name, name if role == lost else "", restartPolicy=ON_FAILURE),
        }
        for role, count in roles.items()
    ]
    mode = {"jobMode": "dist"} if prefix == "mx" else {}
    return job_of(api_version, kind, name, {**mode, "cleanPodPolicy": "None", "replicaSpecs": sets})


class Ranks(NamedTuple):
    """A job of ranks.py: how many replicas it has, and whether all are made again when one is lost."""

    job: Json
    size: int
    gang: bool


RANKS = {
    ranks.job["metadata"]["name"]: ranks
    for ranks in (
        Ranks(
            kubeflow_job("TFJob", "tf", "tfReplicaSpecs", "tensorflow", {"Chief": 1, "PS": 1, "Worker": 1}), 3, False
        ),
        Ranks(
            kubeflow_job("PyTorchJob", "torch", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}), 3, True
        ),
        Ranks(kubeflow_job("XGBoostJob", "xgboost", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 1}), 2, True),
        Ranks(kubeflow_job("PaddleJob", "paddle", "paddleReplicaSpecs", "paddle", {"Worker": 2}), 2, True),
        Ranks(kubeflow_job("JAXJob", "jax", "jaxReplicaSpecs", "jax", {"Worker": 2}), 2, True),
        Ranks(
            listed_job(
                "tensorflow.org/v1alpha1", "TfJob", "old-tf", "tf", "WORKER", {"MASTER": 1, "WORKER": 1, "PS": 1}
            ),
            3,
            False,
        ),
        Ranks(
            listed_job("mlkube.io/v1beta1", "MxJob", "mx", "mx", "WORKER", {"SCHEDULER": 1, "SERVER": 1, "WORKER": 1}),
            3,
            True,
        ),
    )
}
ELASTIC = job_of(
    "elastic.pytorch.org/v1alpha1",
    "ElasticJob",
    "elastic",
    {
        "rdzvBackend": "c10d",
        "minReplicas": 2,
        "maxReplicas": 3,
        "replicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": EXIT_CODE, "template": ranks("elasticjob-worker")}},
    },
)
WHERE = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(hostname)"'
MPIRUN = f"mpirun --version | head -1; mpirun -n 2 --allow-run-as-root --bind-to none --map-by node sh -c '{WHERE}'"


def mpi_job(version: str, name: str, image: str) -> Json:
    """The launcher may begin before the workers listen: ssh and our program for exec try again."""
    sets = {
        role: {"replicas": count, "template": template(container("mpi", *command, image=image))}
        for role, count, command in (("Launcher", 1, ["sh", "-c", MPIRUN]), ("Worker", 2, []))
    }
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": sets}
    return job_of(f"kubeflow.org/{version}", "MPIJob", name, spec)


def chainer_job(name: str, image: str) -> Json:
    idle = ["sh", "-c", "while true; do sleep 1 & wait; done"]
    return job_of(
        "kubeflow.org/v1alpha1",
        "ChainerJob",
        name,
        {
            "backend": "mpi",
            "master": {"template": template(container("chainer", "sh", "-c", MPIRUN, image=image))},
            "workerSets": {"ws": {"replicas": 1, "template": template(container("chainer", *idle, image=image))}},
        },
    )


class MPICase(NamedTuple):
    """A job of MPI: in which pods its ranks must run. The pod that starts them has `starter` in its name."""

    job: Json
    version: str
    starter: str
    hosts: tuple[str, str]


def mpi_cases(number: int, version: str, image: str) -> dict[str, MPICase]:
    """By name, with one version of Open MPI."""
    cases = {}
    for name, api in ((f"exec-{number}", "v1"), (f"ssh-{number}", "v2beta1")):
        hosts = f"{name}-worker-0", f"{name}-worker-1"
        cases[name] = MPICase(mpi_job(api, name, image), version, "launcher", hosts)
    name = f"chainer-{number}"
    hosts = "STARTER", f"{name}-workerset-ws-0"
    return {**cases, name: MPICase(chainer_job(name, image), version, "master", hosts)}


MPI = {**mpi_cases(4, "4.1.4", MPI_IMAGE), **mpi_cases(5, "5.0.11", MPI_5_IMAGE)}


@pytest.fixture(scope="module")
def jobs(stage: Stage, real_node: RealNode) -> Stage:
    """The stage with all jobs."""
    for image in (MPI_IMAGE, MPI_5_IMAGE):
        real_node.import_own_image(image)
    stage.create(*(ranks.job for ranks in RANKS.values()), ELASTIC, *(case.job for case in MPI.values()))
    return stage


@pytest.mark.parametrize("ranks", RANKS.values(), ids=RANKS)
def test_the_replicas_find_each_other_again_after_one_is_lost(jobs: Stage, ranks: Ranks) -> None:
    jobs.until_condition(ranks.job, "Succeeded")
    pods = jobs.pods(ranks.job)
    names = sorted(pod["spec"].get("hostname") or name for name, pod in pods.items())
    logs = {name: jobs.logs(name).splitlines() for name in pods}
    assert len(names) == ranks.size
    assert all(f"all are here: {' '.join(names)}" in lines for lines in logs.values()), logs
    assert jobs.job(ranks.job)["status"]["restarts"] == 1
    # The log of a leader that was made again begins after the loss.
    is_lost = any(line.endswith(" is lost") for lines in logs.values() for line in lines)
    assert is_lost is not ranks.gang, logs


@pytest.mark.parametrize("case", MPI.values(), ids=MPI)
def test_mpi_starts_a_rank_in_each_worker(jobs: Stage, case: MPICase) -> None:
    jobs.until_condition(case.job, "Succeeded")
    starter = next(name for name in jobs.pods(case.job) if case.starter in name)
    lines = jobs.logs(starter).splitlines()
    hosts = [host.replace("STARTER", starter) for host in case.hosts]
    assert lines[0] == f"mpirun (Open MPI) {case.version}"
    assert {f"rank {rank} of 2 in {host}" for rank, host in enumerate(hosts)} <= set(lines), lines


def test_an_elastic_job_takes_in_a_worker_while_the_others_run(jobs: Stage) -> None:
    first = jobs.until_running(ELASTIC, 2)
    until(lambda: "2 of 3 are here" in jobs.logs("elastic-worker-0"), "two workers have met")
    scaled = jobs.trainyard("scale", "elastic", "3")
    assert scaled.returncode == 0, scaled.stderr
    jobs.until_condition(ELASTIC, "Succeeded")
    pods = jobs.pods(ELASTIC)
    assert {name: uid_of(pods[name]) for name in first} == {name: uid_of(pod) for name, pod in first.items()}
    for name, pod in pods.items():
        assert "all are here: elastic-worker-0 elastic-worker-1 elastic-worker-2" in jobs.logs(name).splitlines()
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
