"""Faults that the enumeration found in the decision, each as the small case that shows it."""

from __future__ import annotations

from tests.support.builders import batch_job, look, pod_of, started


def test_suspending_keeps_a_replica_whose_pod_has_ended_well_and_whose_job_does_not_say_so_yet() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(suspend=True), master, worker, pod_of(master), pod_of(worker, "Succeeded", code=0))
    assert [one.name for one in found.deletes] == ["master-76no-0"]


def test_a_failed_attempt_counts_although_the_next_one_succeeded_before_anybody_looked() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    failed, good = pod_of(worker, "Failed", 0, code=137), pod_of(worker, "Succeeded", 1, code=0)
    found = look(started(), master, worker, pod_of(master), failed, good)
    assert found.status["roles"]["WORKER"]["failures"] == 1
    assert found.status["restarts"] == 1


def test_restarts_in_place_still_count_when_the_replica_has_succeeded() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    found = look(started(), master, worker, pod_of(master), pod_of(worker, "Succeeded", code=0, restarts=2))
    assert found.status["restarts"] == 2


def test_a_master_that_is_not_tried_again_is_shown_as_failed_at_the_end() -> None:
    master = batch_job("MASTER", failed="BackoffLimitExceeded")
    found = look(started(backoffLimit=0), master, pod_of(master, "Failed", code=137))
    assert found.status["state"] == "Failed"
    assert found.status["replicaStatuses"][0]["ReplicasStates"] == {"Failed": 1}
