"""What ends a job, and what is left of it then."""

from __future__ import annotations

import pytest

from tests.core.decision_values import begun_job, beside_a_sidecar, ended_pod, plan_for, stopping_pod, with_status
from tests.model.scenarios import elastic
from tests.model.simulated_job import simulate
from tests.support.builders import batch_job, look, pod_of, started, tfjob
from tests.support.samples import chainerjob, elasticjob, mxjob
from trainyard.core import Kind, Plan
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MXJOB, TFJOB
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
def test_a_job_that_somebody_deletes_has_not_ended_well_because_its_pod_answers_with_0(
    kind: Kind, job: Json, master: str
) -> None:
    simulated = simulate(kind, job)
    simulated.run()
    simulated.settle()
    simulated.end(master, 0)
    deleted = stopping_pod(simulated, "Job", master)
    deleted["status"] = {}
    assert not is_condition_true(simulated.settle()["conditions"], "Succeeded")


@pytest.mark.parametrize("policy", ["Never", "ExitCode", None])
def test_a_worker_whose_preparation_fails_for_good_fails_the_job(policy: str | None) -> None:
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
def test_a_failed_master_keeps_its_pod_although_its_job_does_not_say_failed_yet(policies: Json, code: int) -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(**policies), master, worker, pod_of(master, "Failed", code=code), pod_of(worker))
    assert planned.status["state"] == "Failed"
    assert [delete.name for delete in planned.deletes] == ["worker-76no-0"]


def test_a_master_whose_sidecar_still_runs_is_stopped_when_only_what_has_ended_may_stay() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    pod = beside_a_sidecar(pod_of(master, "Running", code=0))
    planned = look(started(cleanPodPolicy="Running"), master, worker, pod)
    assert planned.status["state"] == "Succeeded"
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"]


def test_a_worker_that_was_taken_out_does_not_run_on_when_the_others_have_ended() -> None:
    job, made = begun_job(ELASTICJOB, elastic(2).spec)
    sets = {"Worker": {**job["spec"]["replicaSpecs"]["Worker"], "replicas": 1}}
    first = ended_pod(made.pop("Pod small-worker-0"), 0, "elasticjob-worker")
    edited = with_status(job, Plan(job["status"]), replicaSpecs=sets)
    planned = plan_for(ELASTICJOB, edited, first, *made.values())
    assert planned.status["state"] == "Succeeded"
    assert [delete.name for delete in planned.deletes] == ["small-worker-1"]
    again = plan_for(ELASTICJOB, with_status(edited, planned), first, *made.values())
    assert [delete.name for delete in again.deletes] == ["small-worker-1"]
