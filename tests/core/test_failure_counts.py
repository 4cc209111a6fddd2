"""Which failed attempts are counted, and how long the next one waits."""

from __future__ import annotations

from tests.core.decision_values import (
    attempts_of,
    ended_pod_of,
    plan_for,
    small_gang,
    with_status,
)
from tests.support.builders import NOW, batch_job, look, pod_of, started
from trainyard.kinds import MXJOB
from trainyard.objects import format_time


def test_a_failed_attempt_counts_even_if_the_next_one_succeeded_before_it_was_observed() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    failed, good = pod_of(worker, "Failed", 0, code=137), pod_of(worker, "Succeeded", 1, code=0)
    planned = look(started(), master, worker, pod_of(master), failed, good)
    assert planned.status["roles"]["WORKER"]["failures"] == 1
    assert planned.status["restarts"] == 1


def test_restarts_in_place_still_count_when_the_replica_has_succeeded() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    planned = look(started(), master, worker, pod_of(master), pod_of(worker, "Succeeded", code=0, restarts=2))
    assert planned.status["restarts"] == 2


def test_a_drain_does_not_shorten_the_back_off_of_a_gang() -> None:
    job, jobs, rest = small_gang()
    drained = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
    pods = [ended_pod_of(jobs[0], 137, "mxnet"), ended_pod_of(jobs[1], 143, "mxnet", **drained)]
    for pod in pods:
        pod["status"]["startTime"] = format_time(NOW - 2)
    for role in job["status"]["roles"].values():
        role["withoutProgress"] = 1
    planned = plan_for(MXJOB, job, *jobs, *rest, *pods)
    assert attempts_of(planned) == {0}
    assert planned.requeue_at == NOW - 1 + 10
    assert attempts_of(plan_for(MXJOB, with_status(job, planned), *jobs, *rest, *pods, now=NOW + 9)) == {1}
