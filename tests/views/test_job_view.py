from __future__ import annotations

from typing import Any

import pytest

from tests.views.job_values import NOW, START, job, pod, terminated
from trainyard.objects import Json
from trainyard.views.durations import format_age, format_clock
from trainyard.views.job_view import JobView, job_result, job_state
from trainyard.views.replica_view import replica_view


def test_a_replica_is_named_by_its_slot_with_its_end() -> None:
    view = replica_view(pod("worker-3", "Failed", terminated(137, "OOMKilled")))
    assert (view.name, view.state, view.exit) == ("worker-3", "Failed", "137 (OOMKilled)")
    assert replica_view(pod("worker-3", "Succeeded", terminated(0, "Completed"))).exit == "0"


def test_a_waiting_replica_shows_its_reason() -> None:
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}
    assert replica_view(pod("worker-0", "Running", waiting)).state == "CrashLoopBackOff"
    assert replica_view(pod("worker-0", "Running", waiting)).blocked == ""
    assert replica_view(pod("worker-0", deletionTimestamp=START)).state == "Terminating"


def test_a_replica_that_was_stopped_has_not_failed() -> None:
    gone = {"deletionTimestamp": START}
    assert replica_view(pod("worker-0", "Failed", terminated(143, "Error"), **gone)).state == "Stopped"
    assert replica_view(pod("worker-0", "Failed", terminated(1, "Error"), **gone)).state == "Failed"
    assert replica_view(pod("worker-0", "Failed", terminated(143, "Error"))).state == "Failed"


def test_a_replica_without_its_image_is_blocked_with_a_fix() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "name a file with --images"}}}
    board = JobView()
    board.update_job(job())
    board.update_pod(pod("worker-0", "Pending", waiting), NOW)
    assert board.blocked_reason(NOW) == "worker-0: ErrImageNeverPull: name a file with --images"


def test_a_missing_reference_may_appear_for_a_while_before_it_blocks() -> None:
    waiting = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "c" not found'}}}
    board = JobView()
    board.update_job(job())
    board.update_pod(pod("ps-0", "Pending", waiting), NOW)
    assert board.blocked_reason(NOW + 9) == "" and "configmap" in board.blocked_reason(NOW + 10)
    board.update_pod(pod("ps-0"), NOW + 5)
    assert board.blocked_reason(NOW + 10) == ""


def test_the_newest_pod_of_a_slot_determines_its_state_and_all_restarts_count() -> None:
    board = JobView()
    board.update_job(job())
    board.update_pod(pod("master-0", "Failed", {**terminated(137, "Error"), "restartCount": 2}, uid="old"), NOW)
    board.update_pod(
        pod("master-0", "Running", {"restartCount": 1}, uid="new", creationTimestamp="2024-01-01T00:01:00Z"), NOW
    )
    (replica,) = board.slots("u")
    assert (replica.uid, replica.state, replica.restarts) == ("new", "Running", 4)


def test_slots_follow_each_change_and_are_kept_where_nothing_has_changed() -> None:
    board, pods = JobView(), {}
    board.update_job(job())

    def slots_after(changed: Json) -> list[Any]:
        pods[changed["metadata"]["uid"]] = changed
        board.update_pod(changed, NOW)
        slots = board.slots("u")
        assert slots == JobView.of(board.jobs.values(), pods.values(), NOW).slots("u")
        return slots

    slots_after(pod("worker-2"))
    slots_after(pod("worker-10"))
    before = slots_after(pod("worker-1"))
    after = slots_after(pod("worker-2", "Failed", terminated(1, "Error")))
    assert (after[0] is before[0], after[1].state) == (True, "Failed")
    slots_after(pod("worker-2", uid="newer", creationTimestamp="2024-01-01T00:01:00Z"))
    slots_after(pod("worker-3", uid="p-worker-10"))  # its labels were edited
    board.update_job({**job(), "status": {"roles": {"Worker": {"replicas": 1, "failures": 4}}}})
    assert [slot.restarts for slot in slots_after(pod("worker-1"))] == [4, 4, 4]


def test_pods_of_other_jobs_are_not_shown() -> None:
    board = JobView()
    board.update_job(job("somebody-else"))
    board.update_pod(pod("master-0"), NOW)
    assert not board.slots("u") and not board.replicas


def test_ten_workers_are_in_order() -> None:
    board = JobView()
    board.update_job(job())
    for index in (10, 2, 1):
        board.update_pod(pod(f"worker-{index}"), NOW)
    assert [slot.name for slot in board.slots("u")] == ["worker-1", "worker-2", "worker-10"]


def test_labels_name_the_job_only_when_there_are_several() -> None:
    board = JobView()
    board.update_job(job())
    view = replica_view(pod("ps-0"))
    assert board.label(view) == "ps-0"
    board.update_job(job("v", "b"))
    assert board.label(view) == "a/ps-0"


def test_the_state_of_a_job_follows_from_its_conditions() -> None:
    results = [job_result(job(**{name: "x"})) for name in ("Succeeded", "Failed", "Running")]
    assert results == ["Succeeded", "Failed", ""]
    assert job_state(job()) == "Pending" and job_state(job(Suspended="x")) == "Suspended"


def test_a_job_that_an_old_operator_ended_has_a_result() -> None:
    legacy = {**job(), "apiVersion": "tensorflow.org/v1alpha1", "status": {"phase": "Done", "state": "Succeeded"}}
    assert job_result(legacy) == job_state(legacy) == "Succeeded"


def test_times_are_printed_in_short_form() -> None:
    assert [format_clock(seconds) for seconds in (0, 7.9, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]


def test_an_age_has_one_unit() -> None:
    assert [format_age(seconds) for seconds in (0, -3, 119, 120, 7199, 7200, 172800)] == [
        "0s",
        "0s",
        "119s",
        "2m",
        "119m",
        "2h",
        "2d",
    ]


def test_the_pod_of_a_stateful_set_has_a_number_of_its_own() -> None:
    worker = pod("ws-0")
    worker["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = "3"
    assert replica_view(worker).name == "ws-3"


def restarts_by_replica(*pods: Json, status: Json | None = None, **more: Any) -> list[tuple[str, int]]:
    """The restarts of each replica of a job that has these pods, from the oldest to the newest."""
    board, owner = JobView(), {**job(), **more}
    board.update_job({**owner, "status": {**owner["status"], **(status or {})}})
    for number, each_pod in enumerate(pods):
        stamp = f"2024-01-01T00:00:{number:02}Z"
        board.update_pod(
            {**each_pod, "metadata": {**each_pod["metadata"], "uid": f"p{number}", "creationTimestamp": stamp}}, NOW
        )
    return [(slot.name, slot.restarts) for slot in board.slots("u")]


def disrupted(slot: str) -> Json:
    failed_pod = pod(slot, "Failed", terminated(137, "Error"))
    failed_pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    return failed_pod


FAILED = pod("worker-0", "Failed", terminated(1, "Error"))
STOPPED = pod("worker-0", "Failed", terminated(143, "Error"), deletionTimestamp=START)


@pytest.mark.parametrize(
    ("pods", "restarts"),
    [
        ([FAILED], 0),
        ([FAILED, pod("worker-0")], 1),
        ([FAILED, FAILED], 1),
        ([pod("worker-0", container={"restartCount": 2})], 2),
        ([{**FAILED, "status": {**FAILED["status"], "reason": "Evicted"}}, pod("worker-0")], 0),
        ([disrupted("worker-0"), pod("worker-0")], 0),
        ([STOPPED, pod("worker-0")], 0),  # suspended and resumed
    ],
)
def test_restarts_count_the_starts_after_failures(pods: list[Json], restarts: int) -> None:
    assert restarts_by_replica(*pods) == [("worker-0", restarts)]


def test_restarts_of_pods_that_are_gone_are_known_where_a_role_has_one_replica() -> None:
    roles = {"MASTER": {"replicas": 1, "failures": 2}, "WORKER": {"replicas": 2, "failures": 5}}
    pods = [pod("master-0"), pod("worker-0")]
    assert restarts_by_replica(*pods, status={"roles": roles}) == [("master-0", 2), ("worker-0", 0)]
    last = pod("master-0", "Failed", terminated(1, "Error"))
    assert restarts_by_replica(last, status={"roles": roles}) == [("master-0", 1)]


def test_each_replica_of_a_gang_was_restarted_as_often_as_the_gang() -> None:
    mx = {"apiVersion": "mlkube.io/v1beta1", "kind": "MxJob"}
    assert restarts_by_replica(STOPPED, pod("worker-0"), pod("ps-0"), status={"restarts": 1}, **mx) == [
        ("ps-0", 1),
        ("worker-0", 1),
    ]


def test_a_pod_with_a_missing_claim_is_blocked_after_a_while_with_a_fix() -> None:
    message = '0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/1 nodes are available.'
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waiting = pod("worker-0", "Pending")
    waiting["status"] |= {"conditions": [unplaced], "containerStatuses": []}
    board = JobView()
    board.update_job(job())
    board.update_pod(waiting, NOW)
    assert board.blocked_reason(NOW + 9) == ""
    fix = "add the PersistentVolumeClaim to the file, or name a folder of this machine: --mount data=DIR"
    assert board.blocked_reason(NOW + 10) == f'worker-0: persistentvolumeclaim "data" not found; {fix}'
    waiting["status"]["conditions"] = [{**unplaced, "status": "True"}]
    board.update_pod(waiting, NOW + 11)
    assert board.blocked_reason(NOW + 60) == ""


def test_a_pod_whose_volume_cannot_be_set_up_is_blocked_after_a_while() -> None:
    message = 'MountVolume.SetUp failed for volume "d" : configmap "nomap" not found'
    board = JobView()
    board.update_job(job())
    state = {"waiting": {"reason": "ContainerCreating", "message": message}}
    board.update_pod(pod("worker-0", "Pending", {"state": state}), NOW)
    assert board.blocked_reason(NOW + 9) == "" and board.blocked_reason(NOW + 10) == f"worker-0: {message}"


ACCOUNT = 'error looking up service account default/robot: serviceaccount "robot" not found'


def test_a_missing_service_account_blocks_a_job_until_its_pod_is_made() -> None:
    board = JobView()
    board.update_job(job())
    refusal = {"message": f'Error creating: pods "x-" is forbidden: {ACCOUNT}', "reason": "FailedCreate"}
    board.update_event({**refusal, "involvedObject": {"kind": "Job", "name": "worker-0", "uid": "u-job"}}, NOW)
    assert board.blocked_reason(NOW + 9) == ""
    assert board.blocked_reason(NOW + 10) == f"worker-0: {ACCOUNT}; add the ServiceAccount to the file"
    owner = {"uid": "u-job", "controller": True}
    board.update_pod(pod("worker-0", ownerReferences=[owner]), NOW + 11)
    assert board.blocked_reason(NOW + 60) == ""


def test_a_job_whose_pods_need_a_missing_service_account_is_blocked() -> None:
    board = JobView()
    board.update_job(job(Blocked=f"pods are refused: {ACCOUNT}"), NOW)
    assert board.blocked_reason(NOW + 10) == f"a: {ACCOUNT}; add the ServiceAccount to the file"
    board.update_job(job(), NOW + 11)
    assert board.blocked_reason(NOW + 60) == ""
    board.update_job(job(Blocked="exceeded quota"), NOW)
    assert board.blocked_reason(NOW + 60) == ""
