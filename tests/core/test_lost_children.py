"""Objects that another client deletes are created again: alone, or with the gang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import kubeflow_job, mxjob, sample
from trainyard import kinds
from trainyard.objects import Json, Ref, find_condition
from trainyard.objects.labels import ATTEMPT


def attempt_labels(simulated: SimulatedJob) -> set[str]:
    return {simulated.get("Job", name)["metadata"]["labels"][ATTEMPT] for name in simulated.names("Job")}


def drop_pod(simulated: SimulatedJob) -> str:
    """The pod that has no Job any more."""
    (pod_name,) = [name for name in simulated.names("Pod") if name.startswith("example-worker-1kkf-1-")]
    return pod_name


def test_a_gang_restarts_when_a_batch_job_was_deleted_and_no_failure_is_counted() -> None:
    """MXNet does not take a lost replica back (S33)."""
    simulated = simulate(kinds.MXJOB, mxjob())
    simulated.run()
    simulated.settle()
    simulated.objects.pop(Ref("Job", "example-worker-1kkf-1"))  # its pod is about to follow
    condition = find_condition(simulated.step().status["conditions"], "Restarting") or {}
    assert condition["status"] == "True" and "the batch Job of WORKER 1 was deleted" in condition["message"]
    simulated.objects = {ref: child for ref, child in simulated.objects.items() if ref.name != drop_pod(simulated)}
    status = simulated.settle()
    assert attempt_labels(simulated) == {"1"} and len(simulated.names("Job")) == 4 and not status["restarts"]


def test_a_tf_job_that_loses_a_job_by_hand_makes_that_one_again_alone() -> None:
    simulated = simulate(kinds.TFJOB, sample("TfJob"))
    simulated.run()
    simulated.settle()
    simulated.lose("Job", "worker-76no-0")
    simulated.settle()
    assert attempt_labels(simulated) == {"0"} and "worker-76no-0" in simulated.names("Job")


def test_a_gang_member_that_is_missing_before_all_have_run_is_created_again_alone() -> None:
    """No object shows that it existed before: it may as well be the first attempt, which a quota delayed."""
    simulated = simulate(kinds.MXJOB, mxjob())
    simulated.objects.pop(Ref("Job", "example-worker-1kkf-1"))
    simulated.settle()
    assert attempt_labels(simulated) == {"0"} and len(simulated.names("Job")) == 4


def test_a_gang_restarts_when_a_batch_job_is_gone_together_with_its_pod() -> None:
    simulated = simulate(kinds.MXJOB, mxjob())
    simulated.run()
    simulated.settle()
    simulated.lose("Job", "example-worker-1kkf-1")
    status = simulated.settle()
    assert attempt_labels(simulated) == {"1"} and len(simulated.names("Job")) == 4 and not status["restarts"]


GANG_KINDS = ("PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")
RESTART_SCOPE = "trainyard.dev/restart-scope"
KINDS = {kind.gvk.kind: kind for kind in kinds.KINDS}


def running_gang(kind: str, **job: Any) -> SimulatedJob:
    """A job of three replicas whose Pods all run, as its status says."""
    simulated = simulate(KINDS[kind], gang_job(kind, **job))
    simulated.run()
    simulated.settle()
    return simulated


def gang_job(kind: str, annotations: dict[str, str] | None = None, workers: int = 3) -> Json:
    """A job with a Master, where the kind has one whose Pods are a gang, and Workers."""
    roles: dict[str, Any] = {"Worker": {"replicas": workers, "restartPolicy": "ExitCode"}}
    if kind not in ("JAXJob", "PaddleJob"):
        roles["Master"] = {"replicas": 1, "restartPolicy": "ExitCode"}
    job = kubeflow_job(kind, **roles)
    return {**job, "metadata": {**job["metadata"], "annotations": annotations or {}}}


def pod_attempts(simulated: SimulatedJob) -> set[str]:
    return {simulated.get("Pod", name)["metadata"]["labels"][ATTEMPT] for name in simulated.names("Pod")}


def last_pod(simulated: SimulatedJob) -> str:
    return max(simulated.names("Pod"))


@pytest.mark.parametrize("kind", GANG_KINDS)
def test_a_gang_restarts_when_one_of_its_running_pods_is_gone(kind: str) -> None:
    """Deleted by force while no operator ran: no object is left that shows it."""
    simulated = running_gang(kind)
    pods = len(simulated.names("Pod"))
    lost = last_pod(simulated)
    simulated.lose("Pod", lost)
    simulated.step(later=1)  # it is created again
    condition = find_condition(simulated.step().status["conditions"], "Restarting") or {}
    assert condition["status"] == "True" and f"Pod {lost} was created again" in condition["message"]
    status = simulated.settle()
    assert pod_attempts(simulated) == {"1"} and len(simulated.names("Pod")) == pods
    assert not status["restarts"] and not any(role["failures"] for role in status["roles"].values())


def test_a_pod_that_is_gone_again_before_the_gang_has_run_again_restarts_alone() -> None:
    simulated = running_gang("PyTorchJob")
    simulated.lose("Pod", last_pod(simulated))
    simulated.settle()
    simulated.lose("Pod", last_pod(simulated))
    simulated.settle()
    assert pod_attempts(simulated) == {"1"}


def test_a_gang_whose_pods_were_never_all_running_creates_a_missing_pod_alone() -> None:
    simulated = simulate(KINDS["PyTorchJob"], gang_job("PyTorchJob"))
    simulated.run(min(simulated.names("Pod")))
    simulated.settle()
    simulated.lose("Pod", last_pod(simulated))
    simulated.settle()
    assert pod_attempts(simulated) == {"0"} and len(simulated.names("Pod")) == 4


def test_a_resumed_gang_is_created_once() -> None:
    simulated = running_gang("PyTorchJob")
    simulated.edit(suspend=True)
    simulated.settle()
    assert "gang" not in simulated.job["status"]
    simulated.edit(suspend=False)
    simulated.settle()
    assert pod_attempts(simulated) == {"1"} and len(simulated.names("Pod")) == 4


def test_a_gang_that_grows_restarts_nothing() -> None:
    simulated = running_gang("JAXJob")
    sets = simulated.job["spec"]["jaxReplicaSpecs"]
    simulated.edit(jaxReplicaSpecs={"Worker": {**sets["Worker"], "replicas": 4}})
    plan = simulated.step()
    created = Ref("Pod", plan.creates[0].name)
    simulated.objects.pop(created)  # the operator died before it sent this write
    simulated.settle()
    assert pod_attempts(simulated) == {"0"} and len(simulated.names("Pod")) == 4


def test_a_replica_that_restarts_alone_does_so_when_its_pod_is_gone() -> None:
    simulated = running_gang("PyTorchJob", annotations={RESTART_SCOPE: "replica"})
    simulated.lose("Pod", last_pod(simulated))
    simulated.settle()
    assert pod_attempts(simulated) == {"0"} and len(simulated.names("Pod")) == 4


def test_a_succeeded_pod_of_a_gang_that_is_gone_restarts_no_other() -> None:
    """Another client has cleaned it; nothing shows whether a later one has succeeded or was lost."""
    simulated = running_gang("JAXJob")
    simulated.end(last_pod(simulated), 0)
    simulated.settle()
    simulated.lose("Pod", last_pod(simulated))
    simulated.settle()
    assert pod_attempts(simulated) == {"0"}


def test_a_failed_pod_of_a_gang_that_is_gone_ends_the_back_off() -> None:
    simulated = running_gang("PyTorchJob")
    simulated.end(last_pod(simulated), 137)
    simulated.settle()
    simulated.lose("Pod", last_pod(simulated))
    status = simulated.settle()
    assert pod_attempts(simulated) == {"1"} and status["restarts"] == 1
