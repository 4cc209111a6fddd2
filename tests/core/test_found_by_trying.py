"""Faults that trying real inputs against the documents found, each as the small case that shows it."""

from __future__ import annotations

import pytest

from trainyard.objects import Json
from trainyard.testing.builders import batch_job, look, pod_of, started

STOPPED: list[tuple[Json, int]] = [({"cleanPodPolicy": "Running"}, 1), ({"backoffLimit": 0}, 137)]


@pytest.mark.parametrize(("policies", "code"), STOPPED, ids=["cleanPodPolicy Running", "backoffLimit"])
def test_a_failed_master_keeps_its_pod_although_its_job_does_not_say_failed_yet(policies: Json, code: int) -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(**policies), master, worker, pod_of(master, "Failed", code=code), pod_of(worker))
    assert found.status["state"] == "Failed"
    assert [one.name for one in found.deletes] == ["worker-76no-0"]


def beside_a_sidecar(pod: Json) -> Json:
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    return pod


def test_a_master_whose_sidecar_still_runs_is_stopped_when_only_what_has_ended_may_stay() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    pod = beside_a_sidecar(pod_of(master, "Running", code=0))
    found = look(started(cleanPodPolicy="Running"), master, worker, pod)
    assert found.status["state"] == "Succeeded"
    assert [one.name for one in found.deletes] == ["master-76no-0"]


def test_no_sidecar_runs_on_while_the_job_is_suspended() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = beside_a_sidecar(pod_of(worker, "Running", code=0))
    found = look(started(suspend=True), master, worker, pod_of(master), pod)
    assert [one.name for one in found.deletes] == ["master-76no-0", "worker-76no-0"]
