"""Exit codes x reasons x roles, and when what ended is tried again (docs/rules.md I.11.3, S14, S27)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import NOW, batch_job, look, pod_of, replicas, started, template
from trainyard.objects import Json, format_time


def master_ended(code: int, reason: str = "", **status: Any) -> tuple[Json, ...]:
    master, worker = batch_job("MASTER", failed="Stopped" if code else "", complete=not code), batch_job("WORKER")
    pod = pod_of(master, "Failed" if code else "Succeeded", code=code, reason=reason, **status)
    return master, worker, pod, pod_of(worker)


PERMANENT = [(1, ""), (2, ""), (126, ""), (127, ""), (1, "OOMKilled"), (137, "OOMKilled"), (255, "OOMKilled")]
RETRYABLE = [(128, ""), (129, ""), (130, ""), (137, ""), (139, ""), (143, ""), (255, "")]


def test_the_master_ends_with_0_and_the_job_has_succeeded() -> None:
    planned = look(started(), *master_ended(0))
    assert (planned.status["phase"], planned.status["state"], planned.status["reason"]) == ("Done", "Succeeded", "")
    assert not planned.deletes and not planned.creates


@pytest.mark.parametrize(("code", "reason"), PERMANENT)
def test_a_permanent_end_of_the_master_fails_the_job_and_leaves_everything(code: int, reason: str) -> None:
    planned = look(started(), *master_ended(code, reason))
    assert (planned.status["phase"], planned.status["state"]) == ("Done", "Failed")
    assert "container tensorflow" in planned.status["reason"] and f"code {code}" in planned.status["reason"]
    assert not planned.deletes and not planned.creates


@pytest.mark.parametrize(("code", "reason"), RETRYABLE)
def test_a_retryable_end_of_the_master_is_counted_and_tried_again(code: int, reason: str) -> None:
    planned = look(started(), *master_ended(code, reason))
    assert planned.status["state"] == "Running"  # the worker runs
    assert planned.status["roles"]["MASTER"] | {"failures": 1, "attempt": 1} == planned.status["roles"]["MASTER"]
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"]


@pytest.mark.parametrize(("code", "reason"), PERMANENT + RETRYABLE)
@pytest.mark.parametrize("role", ["WORKER", "PS"])
def test_no_end_of_another_replica_ends_the_job(role: str, code: int, reason: str) -> None:
    job = started(replicas("MASTER"), replicas(role, template=template(restartPolicy="Never")))
    master, other = batch_job("MASTER"), batch_job(role)
    planned = look(job, master, other, pod_of(master), pod_of(other, "Failed", code=code, reason=reason))
    assert planned.status["state"] == "Running"
    assert planned.status["roles"][role]["failures"] == 1
    assert not planned.deletes and not planned.creates


DISRUPTIONS: list[Json] = [
    {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]},
    {"podReason": "Evicted"},
    {"podReason": "Preempted"},
    {"podReason": "Shutdown"},
    {"podReason": "NodeLost"},
    {"deleting": True},
]


@pytest.mark.parametrize("code", [1, 137])
@pytest.mark.parametrize("sign", DISRUPTIONS, ids=str)
def test_a_disrupted_master_is_replaced_at_once_and_not_counted(sign: Json, code: int) -> None:
    master, worker = batch_job("MASTER", failed="BackoffLimitExceeded"), batch_job("WORKER")
    pod = pod_of(master, "Failed", code=code, deleting=sign.get("deleting", False))
    pod["status"] |= {"conditions": sign.get("conditions", []), "reason": sign.get("podReason", "")}
    planned = look(started(backoffLimit=0), master, worker, pod, pod_of(worker))
    assert planned.status["roles"]["MASTER"]["attempt"] == 1 and planned.status["roles"]["MASTER"]["failures"] == 0
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"]
    assert not planned.status["restarts"]


def test_a_false_disruption_condition_has_no_effect() -> None:
    children = list(master_ended(1))
    children[2]["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "False"}]
    assert look(started(), *children).status["state"] == "Failed"


def test_a_failed_job_without_a_pod_is_believed_after_five_seconds_and_counts_as_retryable() -> None:
    master, worker = batch_job("MASTER", failed="BackoffLimitExceeded"), batch_job("WORKER")
    early = look(started(), master, worker, pod_of(worker), now=NOW + 1)
    assert early.status["roles"]["MASTER"]["failures"] == 0 and early.requeue_at == NOW + 5
    late = look(started(), master, worker, pod_of(worker), now=NOW + 5)
    assert late.status["roles"]["MASTER"] | {"failures": 1, "attempt": 1} == late.status["roles"]["MASTER"]


def test_only_the_container_tensorflow_decides() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(master, "Running", code=0)
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    assert look(started(), master, worker, pod).status["state"] == "Succeeded"


def test_a_failing_sidecar_has_no_effect_while_tensorflow_runs() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(master, "Running")
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"terminated": {"exitCode": 1}}})
    assert look(started(), master, worker, pod).status["state"] == "Running"


def test_a_failed_init_container_is_named_and_its_pod_retried() -> None:
    master, worker = batch_job("MASTER", failed="BackoffLimitExceeded"), batch_job("WORKER")
    pod = pod_of(master, "Failed")
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "PodInitializing"}}
    pod["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"terminated": {"exitCode": 2}}}]
    planned = look(started(), master, worker, pod)
    restarting = next(condition for condition in planned.status["conditions"] if condition["type"] == "Restarting")
    assert "container fetch exited with code 2" in restarting["message"]
    assert (planned.status["phase"], planned.status["roles"]["MASTER"]["failures"]) == ("Creating", 1)


def test_a_replica_that_is_stuck_is_named_while_others_run() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, "Pending")
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    planned = look(started(), master, worker, pod_of(master), pod)
    running = next(condition for condition in planned.status["conditions"] if condition["type"] == "Running")
    assert running["message"] == "at least one replica runs; WORKER 0 waits: ImagePullBackOff"


@pytest.mark.parametrize(
    ("failures", "seconds"), [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 320), (8, 360), (9, 360), (60, 360)]
)
def test_the_back_off_doubles_from_ten_seconds_to_six_minutes(failures: int, seconds: int) -> None:
    job = started(backoffLimit=1000)
    before = {"failures": failures - 1, "attempt": failures - 1, "withoutProgress": failures - 1}
    job["status"]["roles"]["MASTER"] |= before
    master = batch_job("MASTER", attempt=failures - 1, failed="BackoffLimitExceeded")
    pod = pod_of(master, "Failed", code=137, startTime=format_time(NOW - 2))
    planned = look(job, master, pod)
    assert planned.requeue_at == NOW - 1 + seconds
    due = look({**job, "status": planned.status}, master, pod, now=NOW - 1 + seconds)
    assert due.status["roles"]["MASTER"]["attempt"] == failures and len(due.deletes) == 1
    assert due.status["roles"]["MASTER"]["withoutProgress"] == failures


def test_the_first_failure_is_tried_again_at_once() -> None:
    master = batch_job("MASTER", failed="BackoffLimitExceeded")
    planned = look(started(), master, pod_of(master, "Failed", code=137, startTime=format_time(NOW - 2)))
    assert planned.requeue_at is None
    assert (
        planned.status["roles"]["MASTER"] | {"attempt": 1, "failures": 1, "withoutProgress": 1}
        == (planned.status["roles"]["MASTER"])
    )


@pytest.mark.parametrize(
    ("before", "seconds", "progress"), [(0, 10, False), (0, 11, True), (2, 20, False), (2, 21, True), (9, 361, True)]
)
def test_an_attempt_longer_than_its_back_off_has_made_progress(before: int, seconds: int, progress: bool) -> None:
    """It is tried again at once, and what failed before it does not count any more."""
    job = started(backoffLimit=1000)
    job["status"]["roles"]["MASTER"] |= {"attempt": before, "failures": before, "withoutProgress": before}
    master = batch_job("MASTER", attempt=before, failed="BackoffLimitExceeded")
    pod = pod_of(master, "Failed", code=137)
    pod["status"]["startTime"] = format_time(NOW - 1 - seconds)
    planned = look(job, master, pod)
    role = planned.status["roles"]["MASTER"]
    assert role["attempt"] == before + (progress or not before)
    assert role.get("withoutProgress", 0) == (0 if progress else before or 1)


def test_six_retries_without_a_limit_and_no_seventh() -> None:
    job = started()
    job["status"]["roles"]["MASTER"] |= {"failures": 5, "attempt": 5}
    master = batch_job("MASTER", attempt=5, failed="BackoffLimitExceeded")
    assert look(job, master, pod_of(master, "Failed", code=137)).status["phase"] != "Done"
    job["status"]["roles"]["MASTER"] |= {"failures": 6, "attempt": 6}
    master = batch_job("MASTER", attempt=6, failed="BackoffLimitExceeded")
    planned = look(job, master, pod_of(master, "Failed", code=137))
    assert planned.status["phase"] == "Done" and "backoffLimit is 6 by default" in planned.status["reason"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_workers_do_not_count_against_the_default_limit_but_against_the_jobs_own(policy: str) -> None:
    items = replicas("MASTER"), replicas("WORKER", template=template(restartPolicy=policy))
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    failed = [pod_of(worker, "Failed", number, code=1) for number in range(9)]
    running = pod_of(worker, "Running", 10, restarts=9 if policy == "OnFailure" else 0)
    children = [master, worker, pod_of(master), running, *(failed if policy == "Never" else [])]
    assert look(started(*items), *children).status["state"] == "Running"
    assert look(started(*items, backoffLimit=9), *children).status["state"] == "Running"
    ended = look(started(*items, backoffLimit=8), *children)
    assert ended.status["state"] == "Failed" and ended.status["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert {delete.name for delete in ended.deletes} == {"master-76no-0", "worker-76no-0"}


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_clock_jump_never_delays_a_retry_without_limit(hours: int) -> None:
    """F48: the end of a pod lies in the future or far in the past of our clock."""
    now = NOW + hours * 3600
    children = master_ended(137)
    planned = look(started(), *children, now=now)
    again = look({**started(), "status": planned.status}, *children, now=planned.requeue_at or now)
    assert again.status["roles"]["MASTER"]["attempt"] == 1
    assert planned.requeue_at is None or now <= planned.requeue_at <= now + 10


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_jump_moves_the_deadline_and_never_plans_a_time_in_the_past(hours: int) -> None:
    job = started(activeDeadlineSeconds=600)
    planned = look(job, now=NOW + hours * 3600)
    assert (planned.status["state"] == "Failed") == (hours > 0)
    assert planned.requeue_at is None or planned.requeue_at >= NOW + hours * 3600


def test_completion_in_the_future_keeps_the_time_to_live_finite() -> None:
    job = started(ttlSecondsAfterFinished=60)
    job["status"]["conditions"].append({"type": "Succeeded", "status": "True", "reason": "JobSucceeded"})
    job["status"]["completionTime"] = format_time(NOW + 3600)
    planned = look(job)
    assert planned.requeue_at == NOW + 3660 and not planned.deletes
    assert [delete.name for delete in look(job, now=NOW + 3660).deletes] == ["example-job"]


@pytest.mark.parametrize(("before", "wait"), [(0, 0), (1, 10), (2, 20)])
def test_repeated_disruptions_back_off_as_failures_do(before: int, wait: int) -> None:
    """S27: replaced at once; but what is thrown out again and again must not spin."""
    job = started()
    job["status"]["roles"]["MASTER"] |= {"attempt": before, "withoutProgress": before}
    master = batch_job("MASTER", attempt=before)
    pod = pod_of(master, "Failed", code=1)
    pod["status"] |= {"reason": "Evicted", "startTime": format_time(NOW - 2)}
    planned = look(job, master, pod)
    assert planned.status["roles"]["MASTER"]["attempt"] == (before if wait else before + 1)
    assert planned.requeue_at == (NOW - 1 + wait if wait else None)
    assert planned.status["roles"]["MASTER"]["failures"] == 0
    assert planned.status.get("restartCauses") == (None if wait else {"program": 0, "eviction": 1})


def test_a_failed_pod_without_any_exit_code_is_a_retryable_failure_with_the_pods_reason() -> None:
    for reason, expected_reason in (("UnexpectedAdmissionError", "UnexpectedAdmissionError"), ("", "Failed")):
        master = batch_job("MASTER", failed="Stopped")
        pod = pod_of(master, "Failed")
        pod["status"] |= {"reason": reason, "containerStatuses": []}
        planned = look(started(), master, pod)
        assert planned.status["roles"]["MASTER"]["failures"] == 1
        restarting = next(condition for condition in planned.status["conditions"] if condition["type"] == "Restarting")
        assert restarting["message"] == f"MASTER 0 ended: {expected_reason}; retryable, tried again"


def test_a_pod_that_is_going_does_not_run_any_more() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(), master, worker, pod_of(worker, "Running", deleting=True))
    assert planned.status["state"] != "Running"


def test_a_pod_that_has_succeeded_needs_no_container_status() -> None:
    master = batch_job("MASTER")
    pod = pod_of(master, "Succeeded")
    pod["status"]["containerStatuses"] = []
    assert look(started(), master, pod).status["state"] == "Succeeded"


def test_a_worker_whose_sidecar_failed_has_not_succeeded() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, "Failed", code=0)
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"terminated": {"exitCode": 1}}})
    planned = look(started(), master, worker, pod_of(master), pod)
    assert planned.status["replicaStatuses"][1]["state"] != "Succeeded"
    assert planned.status["roles"]["WORKER"]["failures"] == 1


def test_a_master_that_failed_is_not_tried_again_while_the_job_is_suspended() -> None:
    master = batch_job("MASTER", failed="Stopped")
    job = started()
    job["spec"]["suspend"] = True
    planned = look(job, master, pod_of(master, "Failed", code=137), now=NOW + 3600)
    assert planned.status["roles"]["MASTER"] | {"attempt": 0, "failures": 1} == planned.status["roles"]["MASTER"]
    assert not planned.deletes and planned.requeue_at is None


def test_only_more_than_counts_is_urgent() -> None:
    """A plan that only changes counts waits in the queue; a phase, a condition, an attempt does not."""
    job = started()
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    running = {**job, "status": look(job, master, worker, pod_of(master), pod_of(worker)).status}
    assert look(job, master, worker, pod_of(master), pod_of(worker)).urgent
    counts = look(running, master, worker, pod_of(master), pod_of(worker, "Pending"))
    assert counts.status_changed and not counts.urgent
    retry = look(running, *master_ended(137), now=NOW + 60)
    assert retry.urgent and retry.status["roles"]["MASTER"]["attempt"] == 1
    assert not look(running, master, worker, pod_of(master), pod_of(worker)).status_changed


def test_an_init_container_with_the_same_name_is_not_the_replica() -> None:
    master = batch_job("MASTER")
    pod = pod_of(master, "Pending")
    pod["status"]["initContainerStatuses"] = [{"name": "tensorflow", "state": {"running": {}}}]
    assert look(started(), master, pod).status["state"] != "Running"
    pod["status"]["initContainerStatuses"] = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}}]
    assert look(started(), master, pod).status["state"] != "Succeeded"


def test_the_status_has_the_observed_generation() -> None:
    job = started()
    assert "observedGeneration" not in look(job).status
    job["metadata"] = {**job["metadata"], "generation": 7}
    assert look(job).status["observedGeneration"] == 7
