"""A replica is judged by its own container; what else runs in its pod still runs."""

from __future__ import annotations

import pytest

from trainyard.testing.builders import batch_job, look, pod_of, started


@pytest.mark.parametrize("clean", ["Running", "All"])
def test_a_sidecar_that_runs_on_after_the_end_is_stopped(clean: str) -> None:
    master = batch_job("MASTER")
    found = look(started(cleanPodPolicy=clean), master, pod_of(master, "Running", code=0))
    assert found.status["state"] == "Succeeded"
    assert [one.name for one in found.deletes if one.gvk.kind == "Job"] == ["master-76no-0"]


def test_a_suspended_job_keeps_no_sidecar_running() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(suspend=True), master, worker, pod_of(master), pod_of(worker, "Running", code=0))
    assert [one.name for one in found.deletes] == ["master-76no-0", "worker-76no-0"]
