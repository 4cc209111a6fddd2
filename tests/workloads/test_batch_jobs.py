from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.workload_values import NOW, deleted_in, ended, is_ready, job, made_in, pod_of, restarted, status_in
from trainyard.objects import Json, find_condition, format_time, labels_of, name_of
from trainyard.objects.writes import Delete
from trainyard.workloads.jobs import decide
from trainyard.workloads.writes import UpdateStatus


def reason(status: Json, kind: str) -> str:
    condition = find_condition(status.get("conditions"), kind)
    return str(condition["reason"]) if condition and condition["status"] == "True" else ""


def test_a_new_job_gets_its_start_time_and_one_pod() -> None:
    decision = decide(job(), [], NOW)
    assert status_in(decision) == {"startTime": format_time(NOW), "active": 1, "ready": 0, "terminating": 0}
    (pod,) = made_in(decision)
    assert isinstance(decision.writes[0], UpdateStatus)
    assert labels_of(pod)["batch.kubernetes.io/job-name"] == "ps-76no-0"
    assert labels_of(pod)["controller-uid"] == "u-job" and labels_of(pod)["mine"] == "yes"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-job"
    assert name_of(pod).startswith("ps-76no-0-") and len(name_of(pod)) == len("ps-76no-0-") + 5


def test_the_jobs_template_is_not_changed_by_the_pods_fields() -> None:
    batch_job = job()
    (pod,) = made_in(decide(batch_job, [], NOW))
    pod["spec"]["containers"][0]["image"] = "other"
    assert batch_job["spec"]["template"]["metadata"]["labels"] == {"mine": "yes"}
    assert batch_job["spec"]["template"]["spec"]["containers"][0]["image"] == "x"


def test_after_a_crash_the_same_pod_is_created_and_after_a_failure_another() -> None:
    first = name_of(made_in(decide(job(), [], NOW))[0])
    again = name_of(made_in(decide(job({"startTime": format_time(NOW), "active": 1}), [], NOW + 5))[0])
    later = name_of(made_in(decide(job({"startTime": format_time(NOW), "failed": 1}), [], NOW + 50))[0])
    assert first == again != later


def test_a_long_name_still_makes_a_legal_pod_name() -> None:
    batch_job = job()
    batch_job["metadata"]["name"] = "a" * 63
    assert len(name_of(made_in(decide(batch_job, [], NOW))[0])) == 63


def test_a_running_job_needs_no_further_writes() -> None:
    pod = is_ready(pod_of(job()))
    status = status_in(decide(job({"startTime": format_time(NOW)}), [pod], NOW))
    assert status["active"] == 1 and status["ready"] == 1
    assert decide(job(status), [pod], NOW + 1).writes == ()


def test_a_pod_that_succeeded_completes_the_job() -> None:
    pod = ended(pod_of(job()), "Succeeded", NOW)
    decision = decide(job({"startTime": format_time(NOW - 9), "active": 1}), [pod], NOW)
    status = status_in(decision)
    assert reason(status, "Complete") == "CompletionsReached"
    assert status["succeeded"] == 1 and status["completionTime"] == format_time(NOW) and "active" not in status
    assert not made_in(decision)


def test_success_wins_over_a_deadline_that_passed_unseen() -> None:
    pod = ended(pod_of(job()), "Succeeded", NOW)
    old = job({"startTime": format_time(NOW - 99)}, activeDeadlineSeconds=10)
    assert reason(status_in(decide(old, [pod], NOW)), "Complete")


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 360), (60, 360)], ids=lambda value: str(value)
)
def test_the_pause_after_a_failure_doubles_up_to_six_minutes(failures: int, pause: int) -> None:
    limit: dict[str, Any] = {"backoffLimit": 2147483647}
    running = job({"startTime": format_time(NOW - 500), "failed": failures - 1}, **limit)
    pod = ended(pod_of(running, failures - 1), "Failed", NOW)
    decision = decide(running, [pod], NOW + 1)
    assert not made_in(decision) and decision.requeue_at == NOW + pause
    counted = job(status_in(decision), **limit)
    assert counted["status"]["failed"] == failures and "active" not in counted["status"]
    assert not made_in(decide(counted, [pod], NOW + pause - 1))
    assert len(made_in(decide(counted, [pod], NOW + pause))) == 1


@pytest.mark.parametrize(
    ("ended_at", "created", "pause"),
    [(NOW + 3, NOW - 5, 13), (NOW + 3600, NOW - 5, 5), (NOW + 3600, NOW + 3595, 0)],
    ids=["a clock that is fast", "the node's clock was set back", "all clocks were set back"],
)
def test_a_pod_that_ended_an_hour_from_now_is_not_waited_for(ended_at: float, created: float, pause: float) -> None:
    failed = job({"startTime": format_time(NOW - 50), "failed": 1}, backoffLimit=9)
    pod = ended(pod_of(failed, creationTimestamp=format_time(created)), "Failed", ended_at)
    decision = decide(failed, [pod], NOW)
    assert decision.requeue_at == (NOW + pause if pause else None)
    assert len(made_in(decide(failed, [pod], NOW + pause))) == 1


def test_a_failed_pod_is_counted_once_even_after_it_is_deleted() -> None:
    running = job({"startTime": format_time(NOW - 50)}, backoffLimit=9)
    pod = ended(pod_of(running), "Failed", NOW)
    counted = job(status_in(decide(running, [pod], NOW)), backoffLimit=9)
    assert counted["status"]["failed"] == 1
    again = decide(counted, [pod], NOW + 1)
    assert not again.writes
    gone = decide(counted, [], NOW + 1)
    assert status_in(gone)["failed"] == 1 and len(made_in(gone)) == 1


def test_the_count_is_written_before_the_next_pod_is_created() -> None:
    running = job({"startTime": format_time(NOW - 500)}, backoffLimit=9)
    decision = decide(running, [ended(pod_of(running), "Failed", NOW - 100)], NOW)
    assert isinstance(decision.writes[0], UpdateStatus) and decision.writes[0].obj["status"]["failed"] == 1
    assert made_in(decision)[0]["metadata"]["annotations"]["trainyard.dev/failures-before"] == "1"


@pytest.mark.parametrize(("limit", "ends"), [(0, True), (1, False)])
def test_more_failures_than_backoff_limit_end_the_job(limit: int, ends: bool) -> None:
    running = job({"startTime": format_time(NOW - 50)}, backoffLimit=limit)
    status = status_in(decide(running, [ended(pod_of(running), "Failed", NOW)], NOW))
    assert reason(status, "Failed") == ("BackoffLimitExceeded" if ends else "")
    assert status["failed"] == 1


@pytest.mark.parametrize(
    ("limit", "times", "ends"), [(0, 0, False), (0, 1, True), (2, 1, False), (2, 2, True), (2147483647, 900, False)]
)
def test_restarts_in_place_count_with_restart_policy_on_failure(limit: int, times: int, ends: bool) -> None:
    running = job({"startTime": format_time(NOW - 50)}, "OnFailure", backoffLimit=limit)
    pod = restarted(pod_of(running), times)
    decision = decide(running, [pod], NOW)
    assert (reason(status_in(decision), "Failed") == "BackoffLimitExceeded") is ends
    assert deleted_in(decision) == (["u-pod-0"] if ends else [])


def test_restarts_in_place_do_not_count_with_restart_policy_never() -> None:
    running = job({"startTime": format_time(NOW - 50)}, backoffLimit=0)
    assert not reason(status_in(decide(running, [restarted(pod_of(running), 3)], NOW)), "Failed")


def test_a_job_past_its_deadline_fails_and_its_pod_is_stopped() -> None:
    running = job({"startTime": format_time(NOW - 9)}, activeDeadlineSeconds=10)
    pod = pod_of(running)
    assert decide(running, [pod], NOW).requeue_at == NOW + 1
    decision = decide(running, [pod], NOW + 1)
    assert reason(status_in(decision), "Failed") == "DeadlineExceeded"
    assert status_in(decision)["failed"] == 1
    assert deleted_in(decision) == ["u-pod-0"]


def test_a_finished_job_never_changes_and_its_running_pods_are_stopped() -> None:
    over = job({"conditions": [{"type": "Failed", "status": "True"}], "failed": 1})
    decision = decide(over, [pod_of(over, 1), ended(pod_of(over), "Failed", NOW)], NOW)
    assert [type(write) for write in decision.writes] == [Delete] and deleted_in(decision) == ["u-pod-1"]


def test_a_finished_job_is_deleted_when_its_ttl_expires() -> None:
    done = [{"type": "Complete", "status": "True", "lastTransitionTime": format_time(NOW)}]
    over = job({"conditions": done}, ttlSecondsAfterFinished=30)
    waiting = decide(over, [], NOW + 29)
    assert waiting.writes == () and waiting.requeue_at == NOW + 30
    assert deleted_in(decide(over, [], NOW + 30)) == ["u-job"]


def test_suspending_deletes_the_pod_without_counting_it_and_resuming_resets_the_start_time() -> None:
    running = job({"startTime": format_time(NOW - 50), "active": 1}, suspend=True)
    pod = pod_of(running)
    decision = decide(running, [pod], NOW)
    status = status_in(decision)
    assert reason(status, "Suspended") == "JobSuspended" and "startTime" not in status and "active" not in status
    assert deleted_in(decision) == ["u-pod-0"]
    going = {**ended(pod, "Failed", NOW), "metadata": {**pod["metadata"], "deletionTimestamp": format_time(NOW)}}
    assert "failed" not in status_in(decide(job(status, suspend=True), [going], NOW + 1))
    resumed = decide(job(status, suspend=False), [going], NOW + 2)
    # The old pod still holds the name, so its end is awaited.
    assert "failed" not in status_in(resumed) and not made_in(resumed)
    fresh = decide(job(status, suspend=False), [], NOW + 9)
    assert status_in(fresh)["startTime"] == format_time(NOW + 9) and len(made_in(fresh)) == 1
    assert not reason(status_in(fresh), "Suspended")


def test_a_suspended_job_has_no_deadline() -> None:
    held = job({"startTime": format_time(NOW - 50)}, suspend=True, activeDeadlineSeconds=1)
    assert not reason(status_in(decide(held, [], NOW)), "Failed")


def test_a_pod_that_is_being_deleted_counts_as_failed_and_is_replaced_after_the_pause() -> None:
    running = job({"startTime": format_time(NOW - 50), "active": 1})
    going = pod_of(running, deletionTimestamp=format_time(NOW + 30), deletionGracePeriodSeconds=30)
    decision = decide(running, [going], NOW)
    assert status_in(decision)["failed"] == 1 and status_in(decision)["terminating"] == 1
    assert not made_in(decision) and decision.requeue_at == NOW + 10
    (replacement,) = made_in(decide(job(status_in(decision)), [going], NOW + 10))
    assert name_of(replacement) != name_of(going)


@pytest.mark.parametrize("spec", [{"completions": 3}, {"parallelism": 2}, {"completionMode": "Indexed"}])
def test_a_job_of_more_than_one_pod_is_refused_with_a_message(spec: Json) -> None:
    status = status_in(decide(job(**spec), [], NOW))
    condition = find_condition(status["conditions"], "Failed")
    assert condition and condition["reason"] == "NotSupported" and next(iter(spec)) in condition["message"]


def test_a_job_that_is_terminating_or_managed_by_another_is_not_touched() -> None:
    going = job()
    going["metadata"]["deletionTimestamp"] = format_time(NOW)
    assert decide(going, [], NOW).writes == ()
    assert decide(job(managedBy="example.com/other"), [], NOW).writes == ()
