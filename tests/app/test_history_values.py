"""The history as values: what is recorded of a job, what is kept, what is removed."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard.app.background.cluster_folders import BackgroundError, cluster_names
from trainyard.app.background.clusters import Background
from trainyard.app.history.job_record import JobRecord, as_submitted
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import (
    RECORDING,
    RESULT,
    HistoryRecord,
    RecorderLock,
    find_records,
    folder_name,
    read_record,
    read_records,
)
from trainyard.app.history.retention import cut_log, keep, mark_interrupted, prune
from trainyard.cli.output.record_lines import restarts_of
from trainyard.node.kubelet.lifecycle import step
from trainyard.node.kubelet.pod_state import Container, Ended, Event, Started, Tick
from trainyard.node.kubelet.pod_state import Pod as LifecyclePod
from trainyard.node.kubelet.status import StatusInputs
from trainyard.node.kubelet.status import status as status_of
from trainyard.objects import Json
from trainyard.views.recorded import event_entry, pod_entry

NOW = time.time()
DAY = 86400
JOB_UID = "aaaaaaaa-0000-4000-8000-000000000000"


def pod(number: int = 0, replica: str = "WORKER", index: int = 0, attempt: int = 0, **status: Any) -> Json:
    labels = {"trainyard.dev/role": replica, "trainyard.dev/index": f"{index}", "trainyard.dev/attempt": f"{attempt}"}
    meta = {"name": f"p{number}", "namespace": "default", "uid": f"{number:08x}-pod", "labels": labels}
    return {"metadata": meta, "status": status}


def container(restarts: int = 0, **states: Any) -> Json:
    return {"name": "main", "restartCount": restarts, **states}


def terminated(code: int, finished: str = "2026-01-01T00:00:10Z") -> Json:
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": finished}}


def record(folder: Path, **limits: int) -> JobRecord:
    data = {"uid": JOB_UID, "result": ""}
    return JobRecord(folder, data, RetentionLimits(**limits))


def job(**status: Any) -> Json:
    meta = {"name": "mnist", "namespace": "default", "uid": JOB_UID, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": meta, "spec": {}, "status": status}


def kept_job(root: Path, number: int, result: str = "Succeeded", log: bytes = b"line\n", lock: str = "") -> Path:
    """A job in the history, as a recorder leaves it; with `lock` it is still recorded."""
    folder = root / folder_name(f"{number:08x}-job", "default", f"job{number}", 1_700_000_000 + number)
    logs = folder / "logs" / "master-0" / "attempt-0-00000000" / "main"
    logs.mkdir(parents=True)
    (logs / "1.log").write_bytes(log)
    data = {"uid": f"{number:08x}-job", "name": f"job{number}", "namespace": "default", "kind": "TfJob"}
    data |= {"created": f"2026-01-01T00:00:{number:02}Z", "result": result, "apiVersion": "tensorflow.org/v1alpha1"}
    (folder / RESULT).write_text(json.dumps(data))
    if lock:
        (folder / RECORDING).write_text(f"{lock}\n")
    return folder


# RetentionLimits.


@pytest.mark.parametrize(
    ("variables", "limits"),
    [
        ({}, RetentionLimits()),
        ({"TRAINYARD_HISTORY_JOBS": "0"}, RetentionLimits(jobs=0)),
        ({"TRAINYARD_HISTORY_JOBS": "7", "TRAINYARD_HISTORY_SIZE": "5Mi"}, RetentionLimits(jobs=7, size=5 << 20)),
        ({"TRAINYARD_HISTORY_SIZE": "2.5G"}, RetentionLimits(size=2_500_000_000)),
        ({"TRAINYARD_HISTORY_SIZE": "4096"}, RetentionLimits(size=4096)),
        ({"TRAINYARD_HISTORY_DAYS": "7"}, RetentionLimits(days=7)),
    ],
)
def test_limits_are_read_from_the_environment(variables: dict[str, str], limits: RetentionLimits) -> None:
    assert RetentionLimits.from_environment(variables) == limits


@pytest.mark.parametrize("name", ["TRAINYARD_HISTORY_JOBS", "TRAINYARD_HISTORY_SIZE", "TRAINYARD_HISTORY_DAYS"])
@pytest.mark.parametrize("value", ["many", "-1", "1e9", "1Xi", " 5", "٣"])
def test_an_invalid_limit_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .*; write "):
        RetentionLimits.from_environment({name: value})


# What is recorded.


def test_the_recorded_manifest_is_the_job_without_the_servers_fields() -> None:
    stored = job(state="Running")
    stored["metadata"] |= {"resourceVersion": "7", "generation": 1, "labels": {"a": "b"}}
    assert as_submitted(stored) == {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": {"name": "mnist", "namespace": "default", "labels": {"a": "b"}},
        "spec": {},
    }


def test_the_end_of_every_container_run_is_kept() -> None:
    statuses = [
        container(state={"running": {}}),
        container(0, state={"waiting": {}}, lastState=terminated(1)),
        container(1, state={"running": {}}, lastState=terminated(1)),
        container(1, state=terminated(2), lastState=terminated(1)),
        container(1, state={"waiting": {}}, lastState=terminated(2)),
        container(2, state=terminated(0), lastState=terminated(2)),
    ]
    entry = None
    for status in statuses:
        entry = pod_entry(pod(phase="Running", containerStatuses=[status]), entry)
    assert entry is not None
    assert [(run["run"], run["exitCode"]) for run in entry["containers"][0]["runs"]] == [(1, 1), (2, 2), (3, 0)]
    assert (entry["replica"], entry["restarts"], entry["logs"]) == ("worker-0", 2, "worker-0/attempt-0-00000000")


def test_a_restart_of_all_containers_is_one_run_and_one_restart() -> None:
    """While a removed container waits, its restart is counted already."""
    removed = {"exitCode": 137, "reason": "RestartingAllContainers"}
    waits = container(1, state={"waiting": {"reason": "RestartingAllContainers"}}, lastState={"terminated": removed})
    runs = container(1, state={"running": {}}, lastState={"terminated": removed})
    entry = pod_entry(pod(containerStatuses=[container(0, state={"terminated": {"exitCode": 42}})]))
    for status in (waits, runs):
        entry = pod_entry(pod(containerStatuses=[status, {**status, "name": "logger"}]), entry)
    (run,) = entry["containers"][0]["runs"]
    assert (run["run"], run["exitCode"], entry["restarts"]) == (1, 42, 1)  # the code that an earlier status had


def test_a_container_that_is_restarted_at_once_is_counted_once() -> None:
    """Each status that the node writes, of a program that fails twice and then succeeds."""
    life = LifecyclePod("p_default", "00000000-1", "OnFailure", (Container("tensorflow"),))
    events: list[Event] = [Tick(0)]
    for start, code in ((1, 3), (2, 4), (13, 0)):
        events += [Tick(start), Started(start, "tensorflow"), Ended(start, "tensorflow", code)]
    entry = None
    for event in events:
        life, _ = step(life, event)
        fields = status_of(life, StatusInputs("10.0.0.1", "10.0.0.2", {}), [], 20)
        entry = pod_entry(pod(**fields), entry)
    assert entry is not None and entry["restarts"] == 2
    assert [(run["run"], run["exitCode"]) for run in entry["containers"][0]["runs"]] == [(1, 3), (2, 4), (3, 0)]


def test_of_many_runs_the_first_and_the_last_ends_are_kept() -> None:
    entry = None
    for number in range(1, 41):
        entry = pod_entry(pod(containerStatuses=[container(number - 1, state=terminated(number))]), entry)
    assert entry is not None
    assert [run["run"] for run in entry["containers"][0]["runs"]] == [*range(1, 11), *range(31, 41)]


def test_of_many_pods_of_a_replica_the_first_and_the_last_are_kept_and_the_rest_counted(tmp_path: Path) -> None:
    kept = record(tmp_path, pods=2)
    for number in range(8):
        kept.record_pod(pod(number, attempt=number, phase="Failed"), gone=False)
    kept.record_pod(pod(99, index=1, phase="Running"), gone=False)
    snapshot = kept.snapshot("lock")
    assert [entry["attempt"] for entry in snapshot.pods] == [0, 1, 6, 7, 0]
    assert snapshot.data["leftOut"] == {"worker-0": {"pods": 4}}
    removed = [path.relative_to(tmp_path / "logs") for path in snapshot.removed_logs]
    assert [str(path) for path in removed] == [f"worker-0/attempt-{n}-{n:08x}" for n in (2, 3, 4, 5)]


def test_logs_in_a_users_folder_are_never_removed(tmp_path: Path) -> None:
    kept = record(tmp_path, pods=1)
    kept.data["logs"] = str(tmp_path / "own")
    for number in range(8):
        kept.record_pod(pod(number, phase="Failed"), gone=False)
    assert kept.snapshot("lock").removed_logs == ()


def test_a_pod_that_runs_is_not_left_out(tmp_path: Path) -> None:
    kept = record(tmp_path, pods=1)
    for number in range(5):
        kept.record_pod(pod(number, phase="Running"), gone=False)
    assert len(kept.snapshot("lock").pods) == 5


def test_of_many_events_the_first_and_the_last_are_kept(tmp_path: Path) -> None:
    kept = record(tmp_path, events=2)
    for number in range(9):
        kept.record_event({"metadata": {"uid": f"e{number}"}, "message": f"{number}"})
    snapshot = kept.snapshot("lock")
    assert snapshot.events is not None and [event["message"] for event in snapshot.events] == ["0", "1", "7", "8"]
    assert snapshot.data["eventsLeftOut"] == 5


def test_restarts_are_those_of_the_jobs_status_and_the_start_is_the_first(tmp_path: Path) -> None:
    """A pod that is replaced because it was evicted, deleted, suspended or scaled down is no restart."""
    kept = record(tmp_path)
    kept.record_job(job(startTime="2026-11-23T07:00:00Z"), 0)
    for number in range(4):
        kept.record_pod(pod(number, phase="Failed"), gone=True)
    assert kept.snapshot("lock").data["restarts"] == 0
    kept.record_job(job(startTime="2026-11-23T08:00:00Z", restarts=2), 1)
    data = kept.snapshot("lock").data
    assert (data["restarts"], data["started"]) == (2, "2026-11-23T07:00:00Z")
    kept.snapshot("lock").write()
    again = JobRecord.loaded(tmp_path, json.loads((tmp_path / RESULT).read_text()), RetentionLimits())
    again.record_pod(pod(9, phase="Running"), gone=False)
    assert again.snapshot("lock").data["restarts"] == 2


def test_restarts_are_recorded_by_cause(tmp_path: Path) -> None:
    kept = record(tmp_path)
    kept.record_job(job(restarts=2, restartCauses={"program": 2, "node-lost": 1, "unknown": 3}), 0)
    kept.snapshot("lock").write()
    read = read_record(tmp_path)
    assert read is not None and read.data["restartCauses"] == {"node-lost": 1}
    assert restarts_of(read) == "2; 1 by node-lost"


def test_a_job_is_over_when_its_result_is_known_and_no_pod_runs(tmp_path: Path) -> None:
    kept = record(tmp_path)
    kept.record_job(job(), 0)
    kept.record_pod(pod(1, phase="Running"), gone=False)
    assert not kept.is_finished
    kept.record_job(job(conditions=[{"type": "Succeeded", "status": "True", "message": "done"}]), 100)
    assert not kept.is_finished and kept.data["result"] == "Succeeded" and kept.data["ended"] == "1970-01-01T00:01:40Z"
    kept.record_pod(pod(1, phase="Running"), gone=True)
    assert kept.is_finished and not kept.complete
    kept.record_deletion(200)
    assert kept.complete and kept.data["result"] == "Succeeded"


@pytest.mark.parametrize(("end", "result"), [("interrupt", "Interrupted"), ("delete", "Deleted")])
def test_the_record_of_a_job_that_is_stopped_early_says_so(tmp_path: Path, end: str, result: str) -> None:
    kept = record(tmp_path)
    kept.record_job(job(), 0)
    kept.interrupt(5, "stopped by --timeout") if end == "interrupt" else kept.record_deletion(5)
    assert kept.data["result"] == result and kept.data["ended"] == "1970-01-01T00:00:05Z"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = record(tmp_path)
    kept.record_job(job(state="07502e3070"), 0)
    kept.record_pod(pod(1, phase="Failed", reason="Evicted"), gone=True)
    kept.record_event(
        {"metadata": {"uid": "e"}, "message": "two\nlines: ü", "involvedObject": {"kind": "Pod", "name": "p"}}
    )
    kept.snapshot("lock").write()
    assert (tmp_path / RECORDING).read_text() == "lock\n"
    data = json.loads((tmp_path / RESULT).read_text())
    again = JobRecord.loaded(tmp_path, data, RetentionLimits())
    assert (again.pods, again.events, again.data) == (kept.pods, kept.events, kept.data)
    (event,) = yaml.safe_load((tmp_path / "events.yaml").read_text())
    assert event == event_entry({"metadata": {"uid": "e"}, "message": event["message"]}) | {"object": "Pod/p"}
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["status"] == {"state": "07502e3070"}
    assert "'07502e3070'" in (tmp_path / "job.yaml").read_text()
    again.record_job(job(state="Done"), 0)
    assert again.snapshot("lock").manifest is None, "the job as it was submitted is written once"


def test_a_job_that_was_removed_from_the_history_is_not_written_again(tmp_path: Path) -> None:
    kept = record(tmp_path / "gone")
    kept.record_job(job(), 0)
    kept.snapshot("lock").write()
    assert not (tmp_path / "gone").exists()


# What is kept.


def test_the_oldest_records_are_removed_first_but_none_that_is_being_written(tmp_path: Path) -> None:
    lock = RecorderLock(tmp_path)
    try:
        folders = [kept_job(tmp_path, number, lock=lock.name if number == 1 else "") for number in range(6)]
        prune(tmp_path, RetentionLimits(jobs=3), NOW)
        assert [number for number, folder in enumerate(folders) if folder.exists()] == [1, 4, 5]
    finally:
        lock.close()


def test_jobs_are_removed_until_the_rest_is_small_enough_and_the_newest_stays(tmp_path: Path) -> None:
    folders = [kept_job(tmp_path, number, log=b"x" * 99 + b"\n") for number in range(4)]
    size = sum(path.stat().st_size for path in folders[3].rglob("*") if path.is_file())
    prune(tmp_path, RetentionLimits(size=2 * size), NOW)
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    prune(tmp_path, RetentionLimits(size=0), NOW)
    assert [folder.exists() for folder in folders] == [False, False, False, True]
    assert not list(tmp_path.glob(".removed-*"))


def test_jobs_are_removed_some_days_after_their_last_change_and_the_newest_stays(tmp_path: Path) -> None:
    folders = [kept_job(tmp_path, number) for number in range(4)]
    for folder, days in zip(folders, (91, 89, 200, 300), strict=True):
        os.utime(folder / RESULT, (NOW - days * DAY, NOW - days * DAY))
    prune(tmp_path, RetentionLimits(days=0), NOW)
    assert all(folder.exists() for folder in folders), "0 days are no limit"
    prune(tmp_path, RetentionLimits(), NOW)
    assert [folder.exists() for folder in folders] == [False, True, False, True]


def test_a_record_that_the_user_keeps_is_exempt_from_every_limit_and_counts_for_none(tmp_path: Path) -> None:
    folders = [kept_job(tmp_path, number, log=b"x" * 99 + b"\n") for number in range(6)]
    for folder in folders[:2]:
        keep(stored(folder), True)
        os.utime(folder / RESULT, (0, 0))
    prune(tmp_path, RetentionLimits(jobs=4), NOW)
    assert all(folder.exists() for folder in folders), "four count, and four may stay"
    prune(tmp_path, RetentionLimits(jobs=3), NOW)
    assert [folder.exists() for folder in folders] == [True, True, False, True, True, True]
    prune(tmp_path, RetentionLimits(size=0), NOW)
    assert [folder.exists() for folder in folders] == [True, True, False, False, False, True]
    keep(stored(folders[0]), False)
    prune(tmp_path, RetentionLimits(), NOW)
    assert [folder.exists() for folder in folders] == [False, True, False, False, False, True]


def stored(folder: Path) -> HistoryRecord:
    read = read_record(folder)
    assert read is not None
    return read


def test_the_folders_are_the_only_index(tmp_path: Path) -> None:
    """Nothing but the folders of jobs has to survive: all other files can be deleted, or come from another machine."""
    folders = [kept_job(tmp_path / "history", number) for number in range(3)]
    prune(tmp_path / "history", RetentionLimits(), NOW)
    listed = [record.name for record in read_records(tmp_path / "history")]
    copy = tmp_path / "copy"
    for folder in folders:
        shutil.copytree(folder, copy / folder.name)
    assert [record.name for record in read_records(copy)] == listed == ["job2", "job1", "job0"]
    assert [record.name for record in find_records(copy, "00000001")] == ["job1"]


def test_an_event_with_an_unusual_line_end_hides_no_event(tmp_path: Path) -> None:
    messages = ["a\x85b", "c\u2028d", "e\nf"]
    kept = record(tmp_path)
    for number, message in enumerate(messages):
        kept.record_event({"metadata": {"uid": f"e{number}"}, "message": message})
    kept.snapshot("lock").write()
    assert [event["message"] for event in stored(tmp_path).events()] == messages


def test_a_list_of_jobs_decodes_no_pods(tmp_path: Path) -> None:
    folder = kept_job(tmp_path, 1)
    (folder / RESULT).write_text('{"name": "a", "result": "Failed", "pods": [1e999]}')  # it cannot be decoded
    (listed,) = read_records(tmp_path)
    assert (listed.name, listed.result, listed.pods) == ("a", "Failed", [])
    (folder / RESULT).write_text(json.dumps({"name": "a", "result": "Failed", "pods": [pod_entry(pod(7))]}))
    assert [entry["name"] for entry in stored(folder).pods] == ["p7"]
    assert stored(folder).content["pods"] == stored(folder).pods


def test_the_number_of_replicas_is_known_without_the_pods(tmp_path: Path) -> None:
    kept = record(tmp_path)
    for number, (index, attempt) in enumerate(((0, 0), (0, 1), (1, 0))):
        kept.record_pod(pod(number, index=index, attempt=attempt), gone=False)
    kept.snapshot("lock").write()
    data = json.loads((tmp_path / RESULT).read_text())
    assert (data["replicas"], stored(tmp_path).replicas) == (2, 2)
    (tmp_path / RESULT).write_text(json.dumps({name: value for name, value in data.items() if name != "replicas"}))
    assert stored(tmp_path).replicas == 2, "as earlier versions wrote it"


def test_a_long_log_keeps_its_beginning_and_end_and_notes_the_gap(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(b"".join(b"line %04d\n" % number for number in range(1000)))
    path.with_name(".1.log.new").write_text("of a process that was killed meanwhile")
    cut_log(path, 1000)
    lines = path.read_text().splitlines()
    first, last = lines.index("line 0024"), lines.index("line 0926")
    assert lines[0] == "line 0000" and lines[-1] == "line 0999" and last == first + 2
    left_out = 10 * (926 - 25)
    assert lines[first + 1].startswith(f"[trainyard: {left_out} bytes of this log were removed")


def test_only_the_long_logs_of_jobs_that_are_over_are_cut(tmp_path: Path) -> None:
    lock = RecorderLock(tmp_path)
    try:
        log = b"0123456\n" * 1000
        running, over = kept_job(tmp_path, 1, log=log, lock=lock.name), kept_job(tmp_path, 2, log=log)
        prune(tmp_path, RetentionLimits(log_size=1000), NOW)
        assert next(running.rglob("1.log")).read_bytes() == log
        assert len(next(over.rglob("1.log")).read_bytes()) < 1200
    finally:
        lock.close()


def test_the_record_of_a_killed_process_is_interrupted_and_not_removed(tmp_path: Path) -> None:
    lock = RecorderLock(tmp_path)
    alive = kept_job(tmp_path, 1, result="", lock=lock.name)
    killed = kept_job(tmp_path, 2, result="", lock="1-dead")
    done = kept_job(tmp_path, 3, lock="1-dead")
    os.utime(killed / RESULT, (0, 0))
    os.utime(next(killed.rglob("1.log")), (60, 60))
    try:
        assert [record.result for record in read_records(tmp_path)] == ["Succeeded", "Interrupted", ""]
        mark_interrupted(tmp_path)
        assert (alive / RECORDING).exists() and not (killed / RECORDING).exists() and not (done / RECORDING).exists()
        data = json.loads((killed / RESULT).read_text())
        assert (data["result"], data["ended"]) == ("Interrupted", "1970-01-01T00:01:00Z")
        assert json.loads((done / RESULT).read_text())["result"] == "Succeeded"
    finally:
        lock.close()
    last = read_record(alive)
    assert last is not None and last.result == "Interrupted", "its process has ended"


def test_a_malformed_result_file_hides_no_other_job(tmp_path: Path) -> None:
    kept_job(tmp_path, 1)
    for number, text in ((2, "{"), (3, "[]"), (4, ""), (5, '{"a": ' + "[" * 5000)):
        (kept_job(tmp_path, number) / RESULT).write_text(text)
    (tmp_path / "notes.txt").write_text("mine")
    assert [record.name for record in read_records(tmp_path)] == ["job1"]
    mark_interrupted(tmp_path)
    prune(tmp_path, RetentionLimits(), NOW)


@pytest.mark.parametrize(
    ("text", "namespace", "names_found"),
    [
        ("job1", "", ["job1"]),
        ("tfjob/job1", "", ["job1"]),
        ("TfJobs/job1", "", ["job1"]),
        ("tfjobs.tensorflow.org/job1", "", ["job1"]),
        ("mxjob/job1", "", []),
        ("job1", "other", []),
        ("00000002", "", ["job2"]),
        ("00000002", "other", ["job2"]),
        ("job", "", []),
    ],
)
def test_jobs_are_found_by_name_kind_and_id(tmp_path: Path, text: str, namespace: str, names_found: list[str]) -> None:
    kept_job(tmp_path, 1)
    kept_job(tmp_path, 2)
    assert [record.name for record in find_records(tmp_path, text, namespace)] == names_found


def test_log_files_are_sorted_by_number(tmp_path: Path) -> None:
    for name in ("worker-10/attempt-0-a/main/1", "worker-2/attempt-0-a/main/10", "worker-2/attempt-0-a/main/9"):
        path = tmp_path / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    files = [str(path.relative_to(tmp_path / "logs")) for path in HistoryRecord(tmp_path, {}).log_files()]
    assert [name.split("/")[0] + name.split("/")[-1] for name in files] == [
        "worker-29.log",
        "worker-210.log",
        "worker-101.log",
    ]


def test_the_history_is_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "trainyard" / "history").mkdir(parents=True)
    (tmp_path / "trainyard" / "default").mkdir()
    assert cluster_names() == ["default"]
    with pytest.raises(BackgroundError, match="choose another name"):
        Background("history")


def test_the_last_job_of_a_name_is_the_one_that_was_there_last_not_the_one_that_was_made_last() -> None:
    early = HistoryRecord(Path("early"), {"created": "2026-01-01T00:00:00Z", "deleted": "2026-01-01T09:00:00Z"})
    late = HistoryRecord(Path("late"), {"created": "2026-01-01T01:00:00Z", "ended": "2026-01-01T02:00:00Z"})
    running = HistoryRecord(Path("running"), {"created": "2026-01-01T00:30:00Z"})
    assert sorted([running, early, late], key=lambda record: record.last_seen) == [late, early, running]
