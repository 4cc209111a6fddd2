"""A replica is judged by its own container; what else runs in its pod still runs."""

from __future__ import annotations

import pytest

from tests.core.decision_values import beside_a_sidecar
from tests.model.simulated_job import simulate
from tests.support.builders import batch_job, look, pod_of, started
from tests.support.samples import elasticjob, pods
from trainyard.kinds import ELASTICJOB
from trainyard.objects import format_time


@pytest.mark.parametrize("clean", ["Running", "All"])
def test_a_sidecar_that_runs_on_after_the_end_is_stopped(clean: str) -> None:
    master = batch_job("MASTER")
    planned = look(started(cleanPodPolicy=clean), master, beside_a_sidecar(pod_of(master, code=0)))
    assert planned.status["state"] == "Succeeded"
    assert [delete.name for delete in planned.deletes if delete.gvk.kind == "Job"] == ["master-76no-0"]


def test_a_suspended_job_keeps_no_sidecar_running() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(suspend=True), master, worker, pod_of(master), beside_a_sidecar(pod_of(worker, code=0)))
    assert [delete.name for delete in planned.deletes] == ["master-76no-0", "worker-76no-0"]


@pytest.mark.parametrize(("policy", "ends"), [("Never", True), ("OnFailure", True), ("Always", False)])
def test_a_worker_that_is_done_is_done_although_its_sidecar_runs_on(policy: str, ends: bool) -> None:
    """Only under Always does the node start it again; under OnFailure an exit with 0 is the last (S25)."""
    template = pods("elasticjob-worker")
    template["spec"]["containers"].append({"name": "proxy", "image": "example/proxy:1"})
    simulated = simulate(ELASTICJOB, elasticjob(1, worker={"template": template, "restartPolicy": policy}))
    simulated.run()
    simulated.settle()
    (listed,) = (simulated.get("Pod", name)["status"]["containerStatuses"] for name in simulated.names("Pod"))
    listed[0]["state"] = {
        "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": format_time(simulated.now)}
    }
    assert (simulated.settle()["state"] == "Succeeded") is ends
