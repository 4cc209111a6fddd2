"""The JSON of a job in a list, as the page takes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.views.why_values import NOW, RUNNING, WORKERS, at, pod, tfjob
from trainyard.core import Config, Job, Kind, parse_job
from trainyard.objects import Json, name_of, parse_time
from trainyard.views import job_view
from trainyard.views.job_row import job_row, job_rows
from trainyard.views.job_view import JobView


def test_a_row_is_plain_json() -> None:
    job = tfjob(RUNNING)
    job["metadata"]["resourceVersion"] = "12"
    (row,) = job_rows([job], [pod("MASTER-0"), WORKERS[0]], NOW)
    assert json.loads(json.dumps(msgspec.to_builtins(row))) == {
        "namespace": "default",
        "kind": "TfJob",
        "name": "mnist",
        "uid": "u",
        "apiVersion": "tensorflow.org/v1alpha1",
        "resourceVersion": "12",
        "state": "Running",
        "running": 2,
        "replicas": 3,
        "restarts": 0,
        "states": {"master": {"Running": 1}, "worker": {"Running": 1}},
        "message": "",
        "created": parse_time(at(200)),
        "started": parse_time(at(200)),
        "ended": None,
    }


def test_the_message_is_one_line() -> None:
    (row,) = job_rows([tfjob(("Failed", "PermanentFailure", "worker-0:\n  exit code 1"))], [], NOW)
    assert (row.state, row.message) == ("Failed", "worker-0: exit code 1")


def test_a_pod_that_is_no_replica_does_not_count_as_running() -> None:
    board = pod("MASTER-0")
    board["metadata"]["labels"] = {"trainyard.dev/owner": "u", "app": "tensorboard"}
    (row,) = job_rows([tfjob(RUNNING)], [board], NOW)
    assert (row.running, row.replicas) == (0, 3)


def test_an_object_of_an_unknown_kind_has_a_row() -> None:
    unknown: Json = {"kind": "SomeJob", "apiVersion": "example.com/v1", "metadata": {"name": "a", "uid": "u"}}
    (row,) = job_rows([unknown], [], NOW)
    assert (row.kind, row.state, row.running, row.replicas, row.created) == ("SomeJob", "Pending", 0, 0, None)


def test_rows_of_watched_jobs_parse_a_job_again_only_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse_and_count(kind: Kind, obj: Json, config: Config) -> Job:
        parsed.append(name_of(obj))
        return parse_job(kind, obj, config)

    monkeypatch.setattr(job_view, "parse_job", parse_and_count)
    view = JobView()
    view.update_job(tfjob(RUNNING))
    first = job_row(view, "u")
    for index in range(100):
        view.update_pod(pod(f"WORKER-{index}"), NOW)
        job_row(view, "u")
    assert parsed == ["mnist"]
    changed: dict[str, Any] = tfjob(("Failed", "PermanentFailure", "x"))
    view.update_job(changed)
    assert (first.state, job_row(view, "u").state) == ("Running", "Failed") and parsed == ["mnist", "mnist"]
