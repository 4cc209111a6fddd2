"""What `why`, `events` and `describe` say of jobs and pods that are gone, from the files of the history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.views.why_values import NOW, at, elastic, facts, pod
from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.recorded_job import (
    NOT_KEPT,
    diagnosis_of,
    events_of,
    facts_of,
    find_record,
    gone_pods,
    kept_logs,
)
from trainyard.app.history.records import RESULT, HistoryRecord, folder_name, read_record, write_file
from trainyard.cli.output.record_lines import _wrap_line, record_lines
from trainyard.kinds import kind_of
from trainyard.objects import Json, name_of
from trainyard.views.diagnosis import Finding, why
from trainyard.views.diagnosis.inputs import Facts
from trainyard.views.recorded import pod_log_folder

FAILED = ("Failed", "PermanentFailure", "a worker failed")
UID = "c66e9c6e-0001"


def job(*holding: tuple[str, str, str]) -> Json:
    elastic_job = elastic(*holding)
    elastic_job["metadata"]["uid"] = UID
    return elastic_job


def worker(index: int, code: int) -> Json:
    end = {"exitCode": code, "reason": "Error", "finishedAt": at(20 - index)}
    ended_pod = pod(f"Worker-{index}", {"state": {"terminated": end}}, "Failed", container="elasticjob-worker")
    ended_pod["metadata"]["labels"]["trainyard.dev/owner"] = UID
    if code == 143:  # its deletion has ended it
        ended_pod["metadata"]["deletionTimestamp"] = at(25 - index)
    return ended_pod


def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_job: Json, *pods: Json, end: str = "") -> HistoryRecord:
    """The record that the history has when the job and its pods are deleted; `end` cuts the job short before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "trainyard" / "history" / folder_name(UID, "default", "mnist", NOW)
    folder.mkdir(parents=True)
    record = JobRecord(folder, {"uid": UID, "result": "", "where": "run"}, RetentionLimits())
    record.record_job(last_job, NOW)
    for ended_pod in pods:
        record.record_pod(ended_pod, gone=False)
        record.record_pod(ended_pod, gone=True)
        log = record.logs / pod_log_folder(ended_pod) / "elasticjob-worker" / "1.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"ValueError: {name_of(ended_pod)}\n")
    about = {"kind": "ElasticJob", "name": "mnist", "uid": UID}
    event = {"metadata": {"uid": "e", "name": "e"}, "involvedObject": about, "reason": "Started", "message": "it runs"}
    record.record_event({**event, "lastTimestamp": at(30), "source": {"component": "operator"}})
    if end == "Deleted":
        record.record_deletion(NOW)
    elif end:
        record.interrupt(NOW, end)
    record.snapshot("").write()
    read = read_record(folder)
    assert read is not None
    return read


def answer(record: HistoryRecord) -> tuple[Facts, list[Finding]]:
    job_facts = facts_of(record)
    assert job_facts is not None
    return job_facts, list(diagnosis_of(record, job_facts).findings)


def test_why_of_a_job_that_is_gone_is_the_same_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [worker(index, 1) for index in range(3)]
    record = kept(tmp_path, monkeypatch, job(FAILED), *pods)
    job_facts, findings = answer(record)
    before = why(facts(job(FAILED), *pods, logs=job_facts.logs))
    assert [(finding.summary, finding.evidence) for finding in findings] == [
        (finding_before.summary, finding_before.evidence) for finding_before in before
    ]
    assert findings[0].summary.startswith("worker-0, worker-1, worker-2 ended with exit code 1 (Error)")
    assert findings[0].evidence == ("ValueError: worker-0-abcd-x",)


def test_pods_that_the_end_of_the_job_deleted_are_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = [worker(0, 1), worker(1, 7), worker(2, 143)]
    kept(tmp_path, monkeypatch, job(FAILED), *pods)
    record, kind = find_record(UID), kind_of(job())
    assert record is not None and kind is not None and find_record("another-uid") is None
    gone = gone_pods(record, kind, job(FAILED), pods[:1])
    findings = why(facts(job(FAILED), pods[0], deleted_pods=tuple(gone), logs=kept_logs(record, gone)))
    assert [finding.summary for finding in findings] == [
        "worker-0 ended with exit code 1 (Error): an error of the program's own",
        "worker-1 ended with exit code 7 (Error)",
    ]
    assert findings[1].evidence == ("ValueError: worker-1-abcd-x",)
    (record.logs / pod_log_folder(pods[1]) / "elasticjob-worker" / "1.log").unlink()
    assert [*kept_logs(record, pods[1:2]).values()] == [*kept_logs(None, pods[1:2]).values()] == [(NOT_KEPT,)]


def test_a_pod_that_failed_before_it_was_deleted_is_not_shown_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was killed with SIGKILL and then replaced."""
    record = kept(tmp_path, monkeypatch, job(FAILED), worker(0, 137), worker(1, 143))
    rows = [line.split() for line in record_lines(record, NOW, 80) if line.startswith("  worker-")]
    assert [(row[0], row[2], row[4]) for row in rows] == [("worker-0", "Failed", "137"), ("worker-1", "Stopped", "143")]
    assert "worker-0 ended with exit code 137" in answer(record)[1][0].summary


@pytest.mark.parametrize(
    ("end", "summary", "evidence"),
    [
        ("given up: worker-0: ErrImagePull: x", "it was cut short ", ("given up: worker-0: ErrImagePull: x",)),
        ("Deleted", "it was deleted ", ()),
    ],
)
def test_why_reports_what_interrupted_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, summary: str, evidence: tuple[str, ...]
) -> None:
    record = kept(tmp_path, monkeypatch, job(), worker(0, 143), worker(1, 7), end=end)
    _, findings = answer(record)
    assert findings[0].summary.startswith(summary) and "manifest.yaml" in findings[0].fix
    assert findings[0].evidence == evidence
    assert [finding.summary for finding in findings[1:]] == ["worker-1 ended with exit code 7 (Error)"]


def test_events_have_the_shape_of_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (event,) = events_of(kept(tmp_path, monkeypatch, job(FAILED)))
    assert event["involvedObject"] == {"kind": "ElasticJob", "name": "mnist", "namespace": "default"}
    assert (event["reason"], event["lastTimestamp"]) == ("Started", at(30))


def test_the_page_of_a_record_keeps_its_columns_at_80(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = kept(tmp_path, monkeypatch, job(), end="given up: " + "because of this " * 8)
    lines = [line for text in record_lines(record, NOW, 80) for line in text.split("\n")]
    at = next(number for number, line in enumerate(lines) if line.startswith("Why:       given up"))
    assert lines[at + 1].startswith(" " * 11 + "this because")
    assert max(len(line) for line in lines if str(record.folder) not in line) <= 80


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            "  3s   Normal   Started  Pod/a  ",
            ["  3s   Normal   Started  Pod/a  Created service: the-", " " * 32 + "service-of-the-worker"],
        ),
        (
            "  3s   Normal   Started  Pod/" + "a" * 20 + "  ",
            [
                "  3s   Normal   Started  Pod/" + "a" * 20,
                " " * 11 + "Created service: the- service-of-the-worker",
            ],
        ),
    ],
)
def test_a_row_that_is_too_wide_keeps_its_columns(cells: str, expected: list[str]) -> None:
    assert _wrap_line(cells + "Created service: the- service-of-the-worker", 54) == expected


def test_what_a_job_has_written_reaches_the_terminal_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its colours, too, which the stream would take for those of Trainyard."""
    record = kept(tmp_path, monkeypatch, job(("Failed", "PodFailed", "red \x1b[31m, clear \x1b[2J\r")), worker(0, 1))
    text = "\n".join(record_lines(record, NOW, 100))
    assert "red \\x1b[31m, clear \\x1b[2J" in text and text.replace("\n", "").isprintable()


@pytest.mark.parametrize("left_out", [[1], "x", 1, {"worker-0": 1}, {"worker-0": {}}, {"worker-0": {"pods": "x"}}])
def test_a_damaged_record_is_shown_without_what_is_damaged(
    left_out: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept(tmp_path, monkeypatch, job(("Failed", "PodFailed", "bad data"))).folder
    write_file(folder / RESULT, json.dumps({**json.loads((folder / RESULT).read_bytes()), "leftOut": left_out}))
    record = read_record(folder)
    assert record is not None and any("bad data" in line for line in record_lines(record, NOW, 100))
