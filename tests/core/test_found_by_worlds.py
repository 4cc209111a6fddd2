"""Faults that the enumeration found in the decision, each as the small case that shows it."""

from __future__ import annotations

from trainyard.core import Plan, Seen, child_of, plan
from trainyard.kinds import TFJOB
from trainyard.objects import Json
from trainyard.testing.builders import NOW, batch_job, pod_of, replicas, template, tfjob


def started(**spec: object) -> Json:
    """A job whose first pass was carried out."""
    worker = template(restartPolicy="Never")
    job = tfjob(replicas("MASTER"), replicas("WORKER", template=worker))
    first = plan(TFJOB, job, Seen(), NOW - 60)
    return {**job, "spec": {**job["spec"], **spec}, "status": first.status}


def look(job: Json, *children: Json, now: float = NOW) -> Plan:
    return plan(TFJOB, job, Seen(tuple(map(child_of, children))), now)


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
