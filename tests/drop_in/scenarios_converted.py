"""TrainJobs that `trainyard convert` has made of jobs of kubeflow.org: Trainer accepts them, and makes their Pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.drop_in.scenario import TRAINER, Scenario
from tests.drop_in.scenarios_trainjob import FINISH, START, TRAIN_JOBS
from tests.support.samples import job_of, kubeflow_job, pods
from trainyard.conversion import TRAINJOB, convert
from trainyard.objects import Json

RETRIES: Json = {"restartPolicy": "OnFailure"}


def converted() -> Iterator[Scenario]:
    two = {"replicas": 2, **RETRIES}
    yield _scenario("pytorchjob", kubeflow_job("PyTorchJob", Master=_torch(), Worker=_torch(replicas=2)))
    yield _scenario("pytorchjob-own-runtime", _with_everything())
    yield _scenario("jaxjob", kubeflow_job("JAXJob", Worker=two))
    yield _scenario("xgboostjob", kubeflow_job("XGBoostJob", Master=RETRIES, Worker=two))
    yield _scenario("paddlejob", kubeflow_job("PaddleJob", Master=RETRIES, Worker=two))
    yield _scenario("tfjob-chief", kubeflow_job("TFJob", Chief=RETRIES, PS=RETRIES, Worker=two), START, FINISH)
    yield _scenario("tfjob-workers", kubeflow_job("TFJob", PS={"restartPolicy": "Never"}, Worker=two))
    yield _scenario("mpijob", _mpi("v1"), START, FINISH)
    waits = _mpi("v2beta1", slotsPerWorker=2, runLauncherAsWorker=True, launcherCreationPolicy="WaitForWorkersReady")
    yield _scenario("mpijob-v2beta1", waits)


def _scenario(name: str, job: Json, *steps: Json) -> Scenario:
    """Raises ValueError where a field of the job is not mapped."""
    conversion = convert({**job, "metadata": {"name": "tj"}}, TRAINJOB)
    if conversion.unmapped:
        raise ValueError(f"{name}: {[str(problem) for problem in conversion.unmapped]}")
    *runtimes, train_job = conversion.objects
    return Scenario(TRAIN_JOBS, f"converted-{name}", train_job, steps, TRAINER, objects=tuple(runtimes))


def _torch(**fields: Any) -> Json:
    """All that a TrainJob can have without a runtime of its own."""
    volumes = [{"name": "data", "emptyDir": {}}]
    template = pods("pytorch", nodeSelector={"gpu": "yes"}, volumes=volumes, tolerations=[{"operator": "Exists"}])
    template["metadata"] = {"labels": {"team": "a"}}
    template["spec"]["containers"][0] |= {
        "command": ["python", "train.py"],
        "args": ["-v"],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "2"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {"template": template, **RETRIES, **fields}


def _with_everything() -> Json:
    """What needs a runtime of its own, and the policies of the run."""
    template = pods(
        "pytorch", initContainers=[{"name": "fetch", "image": "example/fetch:1"}], terminationGracePeriodSeconds=5
    )
    template["spec"]["containers"].append({"name": "sidecar", "image": "example/sidecar:1"})
    role = {"template": template, "restartPolicy": "ExitCode"}
    policy = {"suspend": True, "activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 5, "backoffLimit": 3}
    return kubeflow_job("PyTorchJob", run_policy=policy, Master=role, Worker={"replicas": 2, **role})


def _mpi(version: str, **fields: Any) -> Json:
    launcher = pods("mpi")
    launcher["spec"]["containers"][0]["command"] = ["mpirun", "-n", "2", "python", "train.py"]
    sets: Json = {"Launcher": {"replicas": 1, "template": launcher}, "Worker": {"replicas": 2, "template": pods("mpi")}}
    return job_of(f"kubeflow.org/{version}", "MPIJob", {"mpiReplicaSpecs": sets, **fields})
