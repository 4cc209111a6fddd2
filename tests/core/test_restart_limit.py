"""The annotation `restart-limit`, the causes of restarts, and annotations that are not understood."""

from __future__ import annotations

import copy

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import elasticjob, kubeflow_job, mx_set, mxjob
from trainyard import kinds
from trainyard.core.policies.restart_limit import RESTART_LIMIT, RestartLimit, parse_limit
from trainyard.core.restart_causes import disruption_cause
from trainyard.kinds.kubeflow_v1.lifecycle import SUCCESS_GRACE
from trainyard.objects import Json, Ref, find_condition, format_time

SCOPE = "trainyard.dev/restart-scope"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("5/1h", (5, 3600.0)),
        ("0/30s", (0, 30.0)),
        ("1000/7d", (1000, 604800.0)),
        ("3/10m", (3, 600.0)),
        ("1001/1h", None),
        ("5/0h", None),
        ("5/h", None),
        ("5", None),
        ("-1/1h", None),
        ("5/1h ", None),
        ("٥/1h", None),
        ("", None),
        (5, None),
        (None, None),
    ],
)
def test_which_limits_are_understood(text: object, limit: tuple[int, float] | None) -> None:
    assert parse_limit(text) == (RestartLimit(*limit, str(text)) if limit else None)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", "preemption"),
        ("Preempting", "preemption"),
        ("DeletionByTaintManager", "node-lost"),
        ("DeletionByPodGC", "node-lost"),
        ("NodeLost", "node-lost"),
        ("TerminationByKubelet", "node-lost"),
        ("Terminated", "node-lost"),
        ("Evicted", "eviction"),
        ("EvictionByEvictionAPI", "eviction"),
        ("Deleted", "eviction"),
        ("", "eviction"),
    ],
)
def test_the_cause_of_a_disruption(reason: str, cause: str) -> None:
    assert disruption_cause(reason) == cause


def gang(limit: str) -> SimulatedJob:
    job = mxjob(*(mx_set(role) for role in ("SCHEDULER", "SERVER", "WORKER")))
    job["metadata"] |= {"annotations": {RESTART_LIMIT: limit}}
    job["spec"]["backoffLimit"] = 100
    simulated = simulate(kinds.MXJOB, job)
    simulated.run()
    simulated.settle()
    return simulated


def fail(simulated: SimulatedJob, worker: str, after: float) -> Json:
    """The status once a worker has failed `after` seconds, and what restarts with it runs again."""
    simulated.now += after
    simulated.end(worker, 137)
    simulated.settle()
    simulated.run()
    return simulated.settle()


def test_the_restart_beyond_the_limit_fails_the_job() -> None:
    simulated = gang("2/1h")
    worker = "example-worker-1kkf-0"
    for _ in range(2):
        status = fail(simulated, worker, 600)
        assert find_condition(status["conditions"], "Failed") is None
    assert status["restarts"] == 2 and len(status["recentRestarts"]) == 2
    status = fail(simulated, worker, 600)
    failed = find_condition(status["conditions"], "Failed") or {}
    assert (failed["reason"], status["cause"]) == ("RestartLimitExceeded", "RestartLimitExceeded")
    assert failed["message"].startswith(f"restart 3 within 1h, and the annotation {RESTART_LIMIT} is 2/1h; WORKER 0: ")
    assert status["restarts"] == 2


def test_restarts_before_the_window_do_not_count() -> None:
    simulated = gang("2/1h")
    for _ in range(5):
        status = fail(simulated, "example-worker-1kkf-0", 1900)
    assert status["restarts"] == 5 and find_condition(status["conditions"], "Failed") is None


def test_a_limit_of_zero_allows_no_restart() -> None:
    status = fail(gang("0/1h"), "example-worker-1kkf-0", 600)
    assert find_condition(status["conditions"], "Failed") is not None and status["restarts"] == 0


def test_replicas_that_restart_alone_count_too() -> None:
    job = elasticjob(3)
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "1/1h"}}
    simulated = simulate(kinds.ELASTICJOB, job)
    simulated.run()
    simulated.settle()
    assert find_condition(fail(simulated, "example-worker-0", 60)["conditions"], "Failed") is None
    failed = find_condition(fail(simulated, "example-worker-1", 60)["conditions"], "Failed") or {}
    assert failed["reason"] == "RestartLimitExceeded"


@pytest.mark.parametrize("scope", ["gang", "replica"])
def test_restarts_in_place_of_a_pod_that_was_replaced_still_count(scope: str) -> None:
    """Those of the next Pod counted only from the number on that the one before had reached."""
    job = kubeflow_job("PyTorchJob", Master={}, Worker={"replicas": 1, "restartPolicy": "OnFailure"})
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "2/1h", SCOPE: scope}}
    simulated = simulate(kinds.PYTORCHJOB, job)
    for _ in range(2):
        simulated.run()
        simulated.settle()
        simulated.restart("example-worker-0", 1)
        simulated.settle()
        simulated.now += 60
        simulated.evict("example-worker-0")
        status = simulated.settle()
        assert find_condition(status["conditions"], "Failed") is None
    assert status["restarts"] == 2 and status["restartCauses"]["eviction"] == 2
    simulated.run()
    simulated.settle()
    simulated.restart("example-worker-0", 1)
    failed = find_condition(simulated.settle()["conditions"], "Failed") or {}
    assert failed["message"].startswith("RestartLimitExceeded: restart 3 within 1h")


def test_a_stale_cache_does_not_count_the_restarts_in_place_of_a_replaced_pod_again() -> None:
    job = elasticjob(2)
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "5/1h"}}
    simulated = simulate(kinds.ELASTICJOB, job)
    simulated.run()
    simulated.settle()
    simulated.restart("example-worker-0", 137)
    simulated.settle()
    before = copy.deepcopy(simulated.get("Pod", "example-worker-0"))
    simulated.evict("example-worker-0")
    assert simulated.settle()["restarts"] == 1
    simulated.objects[Ref("Pod", "example-worker-0")] = before
    assert simulated.look().status["restarts"] == 1


def test_a_stale_cache_does_not_count_a_restart_that_was_made_as_one_to_make() -> None:
    job = elasticjob(2)
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "1/1h"}}
    simulated = simulate(kinds.ELASTICJOB, job)
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-0", 137)
    failed = simulated.get("Pod", "example-worker-0")
    assert simulated.settle()["restarts"] == 1
    simulated.objects[Ref("Pod", "example-worker-0")] = failed
    assert find_condition(simulated.look().status["conditions"], "Failed") is None


def test_a_job_that_has_succeeded_is_not_failed_by_its_limit() -> None:
    job = kubeflow_job("PyTorchJob", Master={}, Worker={"replicas": 2})
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "0/1h", SUCCESS_GRACE: "60"}}
    simulated = simulate(kinds.PYTORCHJOB, job)
    simulated.run()
    simulated.settle()
    simulated.end("example-master-0", 0)
    simulated.settle()
    simulated.end("example-worker-0", 137)
    simulated.settle()
    simulated.now += 60
    assert find_condition(simulated.settle()["conditions"], "Succeeded") is not None


@pytest.mark.parametrize(("seconds", "without_progress"), [(5.0, 3), (18000.0, None)])
def test_a_pod_that_is_drained_after_progress_ends_a_row_of_attempts_without(
    seconds: float, without_progress: int | None
) -> None:
    simulated = simulate(kinds.JAXJOB, kubeflow_job("JAXJob"))
    simulated.run()
    simulated.settle()
    role = simulated.job["status"]["roles"]["Worker"]
    role["withoutProgress"] = 3
    simulated.now += seconds
    pod = simulated.get("Pod", "example-worker-0")
    pod["metadata"] |= {"deletionTimestamp": format_time(simulated.now + 30), "deletionGracePeriodSeconds": 30}
    role = simulated.look().status["roles"]["Worker"]
    assert (role["attempt"], role.get("withoutProgress")) == (1, without_progress)


def test_a_kind_with_reasons_of_its_own_has_the_cause_at_the_start_of_its_message() -> None:
    job = kubeflow_job("PyTorchJob", Master={"restartPolicy": "ExitCode"})
    job["metadata"] |= {"annotations": {RESTART_LIMIT: "0/1h"}}
    simulated = simulate(kinds.PYTORCHJOB, job)
    simulated.run()
    simulated.settle()
    simulated.end(simulated.names("Pod")[0], 137)
    status = simulated.settle()
    failed = find_condition(status["conditions"], "Failed") or {}
    assert (failed["reason"], status["cause"]) == ("PyTorchJobFailed", "RestartLimitExceeded")
    assert failed["message"].startswith("RestartLimitExceeded: restart 1 within 1h")


def test_disruptions_are_shown_and_not_limited() -> None:
    simulated = gang("0/1h")
    for count in (1, 2):
        simulated.now += 600
        simulated.evict("example-worker-1kkf-0")
        simulated.settle()
        simulated.run()
        status = simulated.settle()
        assert status["restartCauses"] == {"program": 0, "eviction": count} and status["restarts"] == 0
    assert find_condition(status["conditions"], "Failed") is None


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({SCOPE: "job"}, f"metadata.annotations[{SCOPE}]: has no effect as 'job': write replica or gang"),
        ({RESTART_LIMIT: "often"}, f"metadata.annotations[{RESTART_LIMIT}]: has no effect as 'often'"),
    ],
    ids=["restart-scope", "restart-limit"],
)
def test_an_annotation_that_is_not_understood_is_a_problem_and_a_condition(
    annotations: dict[str, str], text: str
) -> None:
    job = kubeflow_job("PyTorchJob")
    job["metadata"] |= {"annotations": annotations}
    assert any(str(problem).startswith(text) for problem in kinds.warnings(kinds.PYTORCHJOB, job))
    simulated = simulate(kinds.PYTORCHJOB, job)
    ignored = find_condition(simulated.settle()["conditions"], "AnnotationIgnored") or {}
    assert ignored["status"] == "True" and ignored["message"].startswith(text)
    simulated.job["metadata"]["annotations"] = {}
    ignored = find_condition(simulated.settle()["conditions"], "AnnotationIgnored") or {}
    assert ignored["status"] == "False"
