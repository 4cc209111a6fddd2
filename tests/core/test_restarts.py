"""`status.restarts` counts restarts: a failed attempt is one only when something was started after it."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import simulate
from tests.support.builders import NOW, batch_job, look, pod_of, replicas, started
from tests.support.samples import elasticjob, kubeflow_job, mx_set, mxjob, pods
from trainyard import kinds
from trainyard.objects import Json, Ref, format_time
from trainyard.objects.resources import JOB, POD


def restarts(status: Json) -> int:
    return int(status.get("restarts", 0))


def test_a_master_that_failed_for_good_was_not_restarted() -> None:
    master = batch_job("MASTER")
    status = look(started(), master, pod_of(master, "Failed", code=1)).status
    assert status["roles"]["MASTER"]["failures"] == 1 and restarts(status) == 0


def after_a_failure(job: Json) -> Json:
    """The job, all of whose roles have ended once without progress, so that a further failure waits for its
    back-off."""
    for role in job["status"]["roles"].values():
        role["withoutProgress"] = 1
    return job


def test_a_master_that_waits_for_its_next_attempt_is_not_yet_restarted() -> None:
    master = batch_job("MASTER")
    pod = pod_of(master, "Failed", code=137, startTime=format_time(NOW - 2))
    status = look(after_a_failure(started()), master, pod).status
    assert status["roles"]["MASTER"]["failures"] == 1 and restarts(status) == 0


def test_a_failed_pod_of_a_worker_counts_when_its_job_has_made_the_next_one() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    failed = pod_of(worker, "Failed", 0, code=1)
    assert restarts(look(started(), master, worker, pod_of(master), failed).status) == 0
    status = look(started(), master, worker, pod_of(master), failed, pod_of(worker, "Pending", 1)).status
    assert restarts(status) == 1


def test_a_worker_that_failed_twice_was_restarted_once_so_far() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    failed = [pod_of(worker, "Failed", number, code=1) for number in (0, 1)]
    status = look(started(), master, worker, pod_of(master), *failed).status
    assert status["roles"]["WORKER"]["failures"] == 2 and restarts(status) == 1


def test_restarts_in_place_count_beside_a_failure_that_ends_the_job() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    worker_pod = pod_of(worker, restarts=2)
    status = look(started(), master, worker, pod_of(master, "Failed", code=1), worker_pod).status
    assert status["state"] == "Failed" and restarts(status) == 2


def test_a_deadline_does_not_count_the_last_failed_attempt_as_restarted() -> None:
    worker = replicas("WORKER")
    job = started(replicas("MASTER"), worker, activeDeadlineSeconds=30)
    master = batch_job("MASTER")
    status = look(job, master, pod_of(master, "Failed", code=137), now=NOW).status
    assert status["state"] == "Failed" and restarts(status) == 0


def test_a_pod_created_again_after_a_failure_is_one_restart_of_an_elastic_job() -> None:
    simulated = simulate(kinds.ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    after_a_failure(simulated.job)
    simulated.end("example-worker-0", 137)
    assert restarts(simulated.settle()) == 0
    simulated.now += 60
    assert restarts(simulated.settle()) == 1 and "example-worker-0" in simulated.names("Pod")


def test_a_clock_that_is_set_back_does_not_take_a_restart_for_one_that_was_made() -> None:
    """A Job that failed without a pod is believed five seconds later; once counted it stays believed."""
    master = batch_job("MASTER", failed="BackoffLimitExceeded")
    master["metadata"]["creationTimestamp"] = format_time(NOW - 2)
    job = after_a_failure(started())
    counted = look(job, master, now=NOW + 6).status
    assert counted["roles"]["MASTER"]["failures"] == 1 and restarts(counted) == 0
    assert restarts(look({**job, "status": counted}, master, now=NOW + 1).status) == 0


def test_a_leader_with_a_stale_cache_never_lowers_the_restart_count() -> None:
    """Found by histories: the watch of jobs may be ahead of the watch of pods."""
    simulated = simulate(kinds.ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-0", 137)
    simulated.settle()
    failed = simulated.get("Pod", "example-worker-0")
    simulated.now += 60
    assert restarts(simulated.settle()) == 1
    simulated.objects[Ref("Pod", "example-worker-0")] = failed
    assert restarts(simulated.look().status) == 1


def test_an_ended_attempt_of_a_replica_that_restarts_alone_is_counted_once() -> None:
    """Found by the worlds: a stale cache shows the failed pod again after its restart."""
    simulated = simulate(kinds.ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-0", 137)
    failed = simulated.get("Pod", "example-worker-0")
    simulated.settle()
    for _ in range(3):
        simulated.now += 60
        simulated.objects[Ref("Pod", "example-worker-0")] = failed
        status = simulated.look().status
        assert [role["withoutProgress"] for role in status["roles"].values()] == [1]
        simulated.job["status"] = status


@pytest.mark.parametrize("victims", [1, 3])
def test_a_gang_that_is_started_again_is_one_restart(victims: int) -> None:
    sets = [mx_set(role) for role in ("SCHEDULER", "SERVER", "WORKER")]
    simulated = simulate(kinds.MXJOB, mxjob(*sets))
    simulated.run()
    simulated.settle()
    for role in ("scheduler", "server", "worker")[:victims]:
        simulated.end(f"example-{role}-1kkf-0", 137)
    after_a_failure(simulated.job)
    assert restarts(simulated.settle()) == 0
    simulated.now += 60
    status = simulated.settle()
    assert restarts(status) == 1 and {role["attempt"] for role in status["roles"].values()} == {1}


@pytest.mark.parametrize("suspended", [False, True])
def test_disruptions_and_suspensions_are_no_restarts(suspended: bool) -> None:
    simulated = simulate(kinds.ELASTICJOB, elasticjob(1))
    simulated.run()
    simulated.settle()
    if suspended:
        simulated.edit(suspend=True)
        simulated.settle()
        simulated.edit(suspend=False)
    else:
        simulated.drop(simulated.get("Pod", "example-worker-0")["metadata"]["uid"])
    simulated.now += 60
    simulated.settle()
    assert "example-worker-0" in simulated.names("Pod") and restarts(simulated.settle()) == 0


def test_only_the_batch_jobs_of_an_ended_attempt_are_deleted_in_the_foreground() -> None:
    """The name of a Pod stays taken anyway until its kubelet has confirmed its end: a finalizer that the garbage
    collector has to remove delays each of them."""
    propagation = []
    workers = {"replicas": 3, "restartPolicy": "ExitCode", "template": pods("jax")}
    for kind, job, failing in (
        (kinds.MXJOB, mxjob(*map(mx_set, ("SCHEDULER", "SERVER", "WORKER"))), "example-worker-1kkf-0"),
        (kinds.JAXJOB, kubeflow_job("JAXJob", Worker=workers), "example-worker-0"),
    ):
        simulated = simulate(kind, job)
        simulated.run()
        simulated.settle()
        simulated.end(failing, 137)
        deletes = simulated.look().deletes
        propagation += [(delete.gvk, delete.propagation) for delete in deletes]
    assert propagation == [(JOB, "Foreground")] * 3 + [(POD, "Background")] * 3
