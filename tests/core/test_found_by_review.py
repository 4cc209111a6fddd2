"""Faults that a reading of the law against the core found, each as the small case that shows it."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import Life, begun
from tests.support.builders import tfjob
from tests.support.samples import chainerjob, elasticjob, mxjob
from trainyard.core import Kind
from trainyard.kinds import ALL, CHAINERJOB, ELASTICJOB, MXJOB, TFJOB
from trainyard.objects import Json, format_time, is_condition_true


def going(life: Life, kind: str, name: str) -> Json:
    """The object is being deleted, and is still there."""
    found = life.get(kind, name)
    found["metadata"]["deletionTimestamp"] = format_time(life.now)
    return found


def test_a_worker_that_answers_to_the_suspend_with_0_does_not_end_the_job() -> None:
    life = begun(ELASTICJOB, elasticjob(1))
    life.run()
    life.settle()
    life.edit(suspend=True)
    assert [one.name for one in life.look().deletes] == ["example-worker-0"]
    life.job["status"] = life.look().status
    life.end("example-worker-0", 0)
    going(life, "Pod", "example-worker-0")
    assert life.settle()["state"] == "Suspended"
    life.drop(life.get("Pod", "example-worker-0")["metadata"]["uid"])
    life.edit(suspend=False)
    assert [one.slot for one in life.step().creates] != []


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
    life = begun(kind, job)
    life.run()
    life.settle()
    life.end(master, 0)
    deleted = going(life, "Job", master)
    deleted["status"] = {}
    assert not is_condition_true(life.settle()["conditions"], "Succeeded")


@pytest.mark.parametrize("policy", ["Never", "ExitCode", None])
def test_a_worker_whose_preparation_fails_for_good_fails_the_job(policy: str | None) -> None:
    """Only ExitCode tries again, and only for the codes of the worker's own container (S23, S25; rules.md 2.4, 2.8)."""
    life = begun(ELASTICJOB, elasticjob(2, worker={"restartPolicy": policy}))
    life.run()
    life.settle()
    status = life.get("Pod", "example-worker-0")["status"]
    status["phase"] = "Failed"
    status["containerStatuses"][0]["state"] = {"waiting": {"reason": "PodInitializing"}}
    status["initContainerStatuses"] = [{"name": "fetch", "state": {"terminated": {"exitCode": 2}}}]
    found = life.settle()
    assert found["state"] == "Failed"
    failed = next(one for one in found["conditions"] if one["type"] == "Failed")
    assert "container fetch exited with code 2" in failed["message"]


def gang_made_again(edit: Json | None = None) -> Life:
    """A gang whose first attempt was killed, after its back-off."""
    life = begun(MXJOB, mxjob())
    life.run()
    life.settle()
    if edit:
        life.edit(**edit)
    life.end("example-worker-1kkf-0", 137)
    life.settle()
    life.step(later=11)
    return life


@pytest.mark.parametrize("edit", [None, {"backoffLimit": -1}], ids=["", "with an edit that is not understood"])
def test_the_name_of_a_scheduler_does_not_lead_to_the_attempt_before(edit: Json | None) -> None:
    """Its pod may be going for as long as it is given to: a worker that meets it there waits for ever (S33)."""
    life = gang_made_again(edit)
    life.settle()
    selector = life.get("Service", "mxjob-1kkf")["spec"]["selector"]
    jobs = [one for ref, one in life.objects.items() if ref.kind == "Job"]
    assert len(jobs) == 4
    for job in jobs:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert labels["trainyard.dev/attempt"] == "1"
        assert selector.items() <= labels.items()


def test_a_start_in_the_future_does_not_stop_a_worker_for_ever() -> None:
    life = begun(ELASTICJOB, elasticjob(2))
    life.run()
    life.settle()
    life.end("example-worker-0", 137)
    life.get("Pod", "example-worker-0")["status"]["startTime"] = "2200-01-01T00:00:00Z"
    assert [one.name for one in life.step().deletes] == ["example-worker-0"]


def test_both_groups_of_a_gang_own_their_children_under_their_own_name() -> None:
    for group in ("mlkube.io", "mxnet.mlkube.io"):
        kind = next(one for one in ALL if one.gvk.kind == "MxJob" and one.gvk.group == group)
        life = begun(kind, {**mxjob(), "apiVersion": f"{group}/v1beta1"})
        owners = {one["metadata"]["ownerReferences"][0]["apiVersion"] for one in life.objects.values()}
        assert owners == {f"{group}/v1beta1"}
