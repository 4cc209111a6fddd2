from __future__ import annotations

from typing import Any

import pytest

from trainyard.cli import view
from trainyard.cli.replica_view import replica_view
from trainyard.cli.view import JobView, format_age, format_clock, job_result, job_state, progress, table
from trainyard.core import Config, Job, Kind, parse_job
from trainyard.objects import Json, format_time, name_of

START = "2024-01-01T00:00:00Z"
NOW = 1704067200.0 + 75


def job(uid: str = "u", name: str = "a", **conditions: str) -> Json:
    listed = [{"type": kind, "status": "True", "message": text} for kind, text in conditions.items()]
    meta = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": START}
    return {"kind": "TfJob", "metadata": meta, "status": {"startTime": START, "conditions": listed}}


def pod(slot: str, phase: str = "Running", container: Json | None = None, **more: Any) -> Json:
    role, _, index = slot.rpartition("-")
    labels = {"trainyard.dev/owner": "u", "trainyard.dev/role": role, "trainyard.dev/index": index}
    meta = {"name": f"{slot}-x", "uid": f"p-{slot}", "labels": labels, "creationTimestamp": START}
    status = {"phase": phase, "startTime": START, "containerStatuses": [{"name": "tensorflow", **(container or {})}]}
    return {"metadata": {**meta, **more}, "status": status}


def terminated(code: int, reason: str, at: str = "2024-01-01T00:00:42Z") -> Json:
    return {"state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}}


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


def test_the_progress_line_counts_replicas_by_role_and_state() -> None:
    board = JobView()
    board.update_job(job(Running="x"))
    board.update_pod(pod("master-0"), NOW)
    board.update_pod(pod("worker-0", "Pending"), NOW)
    board.update_pod(pod("worker-1", container={"restartCount": 1}), NOW)
    line = "a Running · master: 1 Running · worker: 1 Pending, 1 Running · restarts: 1"
    assert progress(board, 67.9) == f"1:07  {line}" and progress(board, None) == line


@pytest.mark.parametrize("count", [3, 300])
def test_the_progress_line_parses_a_job_as_often_however_many_replicas_it_has(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def parse_and_count(kind: Kind, obj: Json, config: Config) -> Job:
        parsed.append(name_of(obj))
        return parse_job(kind, obj, config)

    monkeypatch.setattr(view, "parse_job", parse_and_count)
    board = JobView()
    board.update_job({"apiVersion": "tensorflow.org/v1alpha1", "spec": {"replicaSpecs": []}, **job()})
    for number in range(count):
        board.update_pod(pod(f"worker-{number}"), NOW)
    assert f"worker: {count} Running" in progress(board, 1.0)
    assert parsed == ["a", "a"]


def test_labels_name_the_job_only_when_there_are_several() -> None:
    board = JobView()
    board.update_job(job())
    view = replica_view(pod("ps-0"))
    assert board.label(view) == "ps-0"
    board.update_job(job("v", "b"))
    assert board.label(view) == "a/ps-0"


def test_the_final_table_has_a_line_per_replica_and_a_sentence_per_job() -> None:
    board = JobView()
    board.update_job(job(Failed="the container exited with 1"))
    board.update_pod(pod("master-0", "Failed", terminated(1, "Error")), NOW)
    board.update_pod(pod("ps-0"), NOW)
    assert table(board, NOW) == [
        "JOB  REPLICA   STATE    RESTARTS  EXIT  TIME",
        "a    master-0  Failed   0         1     0:42",
        "a    ps-0      Running  0               1:15",
        "TfJob default/a: Failed after 1:15: the container exited with 1",
    ]


def test_a_job_that_was_interrupted_shows_why() -> None:
    board = JobView()
    board.update_job(job(Running="x"))
    assert table(board, NOW, "interrupted") == ["TfJob default/a: interrupted while Running after 1:15"]


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


def seen(*pods: Json, status: Json | None = None, **more: Any) -> list[tuple[str, int]]:
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
    assert seen(*pods) == [("worker-0", restarts)]


def test_restarts_of_pods_that_are_gone_are_known_where_a_role_has_one_replica() -> None:
    roles = {"MASTER": {"replicas": 1, "failures": 2}, "WORKER": {"replicas": 2, "failures": 5}}
    pods = [pod("master-0"), pod("worker-0")]
    assert seen(*pods, status={"roles": roles}) == [("master-0", 2), ("worker-0", 0)]
    last = pod("master-0", "Failed", terminated(1, "Error"))
    assert seen(last, status={"roles": roles}) == [("master-0", 1)]


def test_each_replica_of_a_gang_was_restarted_as_often_as_the_gang() -> None:
    mx = {"apiVersion": "mlkube.io/v1beta1", "kind": "MxJob"}
    assert seen(STOPPED, pod("worker-0"), pod("ps-0"), status={"restarts": 1}, **mx) == [("ps-0", 1), ("worker-0", 1)]


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


def test_the_progress_line_shows_how_many_peers_a_rendezvous_waits_for() -> None:
    board = JobView()
    elastic = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "spec": {"minReplicas": 3}}
    board.update_job({**job(Running="x"), **elastic})
    board.update_pod(pod("worker-0"), NOW)
    board.update_pod(pod("worker-1", "Pending"), NOW)
    assert "waiting for peers: 1 of 3" in progress(board, None)


def test_the_progress_line_counts_down_a_back_off() -> None:
    board = JobView()
    board.update_job(job(Running="x"))
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 1m20s restarting failed container=a pod=b"}
    last = {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW)}}
    crashed_pod = pod("worker-0", container={"restartCount": 3, "state": {"waiting": waiting}, "lastState": last})
    board.update_pod(crashed_pod, NOW)
    assert "worker-0 starts again in 1:10" in progress(board, 1.0, NOW + 10)
    assert "starts again" not in progress(board, None) + progress(board, 1.0, NOW + 90)


def test_the_prefixes_of_a_run_are_known_from_the_specs() -> None:
    """An init container is not among them; a container of several is."""
    master, worker = {"name": "tensorflow"}, [{"name": "tensorflow"}, {"name": "side"}]
    roles = [
        {
            "tfReplicaType": "MASTER",
            "template": {"spec": {"containers": [master], "initContainers": [{"name": "init"}]}},
        },
        {"tfReplicaType": "WORKER", "replicas": 11, "template": {"spec": {"containers": worker}}},
    ]
    stored = {**job(), "apiVersion": "tensorflow.org/v1alpha1", "spec": {"replicaSpecs": roles}}
    board = JobView({"u": stored})
    assert board.log_prefixes() == ["master-0", "worker-10/tensorflow", "worker-10/side"]
    assert board.log_prefixes("Master") == ["master-0"]
    board.jobs["v"] = {"kind": "Unknown"}
    assert board.log_prefixes("master") == ["a/master-0"]
