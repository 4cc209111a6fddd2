"""What describe, status and the tables print, from facts. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.why_values import NOW, RUNNING, at, child, pod, tfjob
from trainyard import kinds
from trainyard.app.evidence.related_objects import RelatedObjects
from trainyard.cli.command.cluster_jobs import count_by_kind_and_state, job_texts
from trainyard.cli.command.jobs import JobInfo
from trainyard.cli.describe import describe_lines
from trainyard.cli.get import ChangedRows
from trainyard.cli.output.printing import align_columns, document, event_rows
from trainyard.objects import Json
from trainyard.views.event_view import event_view


def event(number: int, **more: Any) -> Json:
    about = {"kind": "TfJob", "name": "mnist", "uid": "u"}
    statuses = {
        "type": "Normal",
        "reason": f"R{number}",
        "message": "a\nb",
        "lastTimestamp": at(90),
        "involvedObject": about,
    }
    return {"metadata": {"name": f"e{number}"}, **statuses, **more}


def page(job: Json, **family: Any) -> list[str]:
    return describe_lines(JobInfo(kinds.TFJOB, job), RelatedObjects(**family), NOW)


def test_describe_prints_the_fields_that_a_user_looks_for() -> None:
    job = tfjob(RUNNING, backoffLimit=3, suspend=False)
    lines = page(job, pods=[pod("MASTER-0")], children=[child("Job", "master-abcd-0", status={"active": 1})])
    text = "\n".join(lines)
    for part in (
        "Name:       mnist",
        "Policies:   backoffLimit=3",
        "  MASTER  1         tensorflow  x      train",
        "  WORKER  2         tensorflow  x      train",
        "  master-0  Running  0               2:30  master-0-abcd-x",
        "  Running  True    JobRunning  3m     at least one replica runs",
        "  Job   master-abcd-0  1 active  100s",
        "Events: none",
    ):
        assert part in text, part


def test_a_page_shows_the_newest_events_and_counts_the_others() -> None:
    lines = page(tfjob(RUNNING), events=[event(number) for number in range(25)])
    assert "  (5 earlier: trainyard events)" in lines and lines[-1].split()[2] == "R24"
    assert not [line for line in lines if " R4 " in line]


def test_an_event_is_one_line_with_its_count() -> None:
    (_, row) = event_rows([event_view(event(1, count=3))], NOW)
    assert row == ["90s (x3)", "Normal", "R1", "TfJob/mnist", "a b"]


def test_a_watched_table_shows_changes_and_deletions(capsys: pytest.CaptureFixture[str]) -> None:
    head = ["KIND", "NAME", "STATE", "RUNNING", "RESTARTS", "AGE"]
    shown = ChangedRows()
    shown.print([head, ["TfJob", "a", "Created", "0/1", "0", "1s"], ["TfJob", "b", "Running", "1/1", "0", "1s"]])
    shown.print([head, ["TfJob", "a", "Running", "1/1", "0", "2s"], ["TfJob", "b", "Running", "1/1", "0", "2s"]])
    shown.print([head, ["TfJob", "b", "Running", "1/1", "0", "3s"]])
    assert capsys.readouterr().out.splitlines() == [
        "KIND   NAME  STATE    RUNNING  RESTARTS  AGE",
        "TfJob  a     Created  0/1      0         1s",
        "TfJob  b     Running  1/1      0         1s",
        "TfJob  a     Running  1/1      0         2s",
        "TfJob  a     Deleted",
    ]


def test_many_jobs_are_counted_and_the_first_few_named() -> None:
    jobs = [("TfJob", f"default/{number}", "Running" if number else "Failed") for number in range(8)]
    assert count_by_kind_and_state(jobs) == ["TfJob: 1 Failed, 7 Running"]
    assert job_texts(jobs)[0] == "TfJob default/0 (Failed)" and job_texts(jobs)[-1] == "and 2 more"


def test_columns_are_aligned_and_objects_are_printed_alone_or_as_a_list() -> None:
    assert align_columns([["A", "B"], ["long", ""]]) == ["A     B", "long"] and align_columns([]) == []
    assert document([{"a": 1}], "json", True) == '{\n  "a": 1\n}'
    assert document([{"a": "x\ny\n"}], "yaml", False) == ("apiVersion: v1\nkind: List\nitems:\n- a: |\n    x\n    y\n")
