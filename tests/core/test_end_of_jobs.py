"""What ends a job, and what is left of it then."""

from __future__ import annotations

import pytest

from tests.core.decision_values import begun_job, beside_a_sidecar, ended_pod, plan_for, stopping_pod, with_status
from tests.model.scenarios import elastic
from tests.model.simulated_job import simulate
from tests.support.builders import batch_job, look, pod_of, started, tfjob
from tests.support.samples import chainerjob, elasticjob, kubeflow_job, mxjob
from trainyard.core import Kind, Plan
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MPIJOB, MXJOB, TFJOB
from trainyard.objects import Json, is_condition_true

STOPPED: list[tuple[Json, int]] = [({"cleanPodPolicy": "Running"}, 1), ({"backoffLimit": 0}, 137)]


@pytest.mark.parametrize(
    ("kind", "job", "master"),
    [
        (TFJOB, tfjob(), "master-76no-0"),
        (MXJOB, mxjob(), "example-scheduler-1kkf-0"),
        (CHAINERJOB, chainerjob(), "example-master"),
    ],
    ids=["TfJob", "MxJob", "ChainerJob"],
)
def test_a_deleted_job_whose_pod_exits_with_0_has_not_succeeded(kind: Kind, job: Json, master: str) -> None:
    simulated = simulate(kind, job)
    simulated.run()
    simulated.settle()
    simulated.end(master, 0)
    deleted = stopping_pod(simulated, "Job", master)
    deleted["status"] = {}
    assert not is_condition_true(simulated.settle()["conditions"], "Succeeded")


@pytest.mark.parametrize("policy", ["Never", "ExitCode", None])
def test_a_worker_whose_init_container_fails_for_good_fails_the_job(policy: str | None) -> None:
    """Only ExitCode tries again, and only for the codes of the worker's own container (S23, S25; rules.md 2.4, 2.8)."""
    simulated = simulate(ELASTICJOB, elasticjob(2, worker={"restartPolicy": policy}))
    simulated.run()
    simulated.settle()
    status = simulated.get("Pod", "example-worker-0")["status"]
    status["phase"] = "Failed"
    status["containerStatuses"][0]["state"] = {"waiting": {"reason": "PodInitializing"}}
    status["initContainerStatuses"] = [{"name": "fetch", "state": {"terminated": {"exitCode": 2}}}]
    settled = simulated.settle()
    assert settled["state"] == "Failed"
    failed = next(condition for condition in settled["conditions"] if condition["type"] == "Failed")
    assert "container fetch exited with code 2" in failed["message"]


@pytest.mark.parametrize(("policies", "code"), STOPPED, ids=["cleanPodPolicy Running", "backoffLimit"])
def test_the_pod_of_a_failed_master_is_kept_while_its_job_status_lags(policies: Json, code: int) -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(**policies), master, worker, pod_of(master, "Failed", code=code), pod_of(worker))
    assert planned.status["state"] == "Failed"
    assert [delete.name for delete in planned.deletes] == ["worker-76no-0"]


@pytest.mark.parametrize("code", [0, 1])
def test_the_pod_of_a_master_is_kept_whose_phase_lags_behind_its_container(code: int) -> None:
    """A kubelet reports the end of the container first, and the phase when it has taken the pod down."""
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(master, "Running", code=code)
    planned = look(started(cleanPodPolicy="Running"), master, worker, pod, pod_of(worker))
    assert planned.status["state"] == ("Failed" if code else "Succeeded")
    assert [delete.name for delete in planned.deletes] == ["worker-76no-0"]


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_the_launcher_is_kept_whose_phase_lags_behind_its_container(phase: str) -> None:
    """Its log is the output of the job. A container that ends at once may be reported before the pod is Running."""
    simulated = simulate(MPIJOB, kubeflow_job("MPIJob", run_policy={"cleanPodPolicy": "Running"}, Launcher=1, Worker=1))
    simulated.run()
    simulated.settle()
    status = simulated.get("Pod", "example-launcher")["status"]
    status["phase"] = phase
    status["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert is_condition_true(simulated.settle()["conditions"], "Succeeded")
    assert simulated.names("Pod") == ["example-launcher"]


def test_clean_pod_policy_running_stops_a_master_whose_sidecar_still_runs() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    pod = beside_a_sidecar(pod_of(master, "Running", code=0))
    planned = look(started(cleanPodPolicy="Running"), master, worker, pod)
    assert planned.status["state"] == "Succeeded"
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"]


def test_a_worker_removed_from_the_spec_is_stopped_at_the_end() -> None:
    job, children = begun_job(ELASTICJOB, elastic(2).spec)
    sets = {"Worker": {**job["spec"]["replicaSpecs"]["Worker"], "replicas": 1}}
    first = ended_pod(children.pop("Pod small-worker-0"), 0, "elasticjob-worker")
    edited = with_status(job, Plan(job["status"]), replicaSpecs=sets)
    planned = plan_for(ELASTICJOB, edited, first, *children.values())
    assert planned.status["state"] == "Succeeded"
    assert [delete.name for delete in planned.deletes] == ["small-worker-1"]
    again = plan_for(ELASTICJOB, with_status(edited, planned), first, *children.values())
    assert [delete.name for delete in again.deletes] == ["small-worker-1"]
