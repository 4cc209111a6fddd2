from __future__ import annotations

import pytest

from tests.views.job_values import NOW, job, pod, terminated
from trainyard.cli.output.job_lines import progress, table
from trainyard.cli.output.log_prefixes import log_prefixes
from trainyard.core import Config, Job, Kind, parse_job
from trainyard.objects import Json, format_time, name_of
from trainyard.views import job_view
from trainyard.views.job_view import JobView


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

    monkeypatch.setattr(job_view, "parse_job", parse_and_count)
    board = JobView()
    board.update_job({"apiVersion": "tensorflow.org/v1alpha1", "spec": {"replicaSpecs": []}, **job()})
    for number in range(count):
        board.update_pod(pod(f"worker-{number}"), NOW)
    assert f"worker: {count} Running" in progress(board, 1.0)
    assert parsed == ["a"]


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
    assert log_prefixes(board) == ["master-0", "worker-10/tensorflow", "worker-10/side"]
    assert log_prefixes(board, "Master") == ["master-0"]
    board.jobs["v"] = {"kind": "Unknown"}
    assert log_prefixes(board, "master") == ["a/master-0"]
