"""The lanes of a timeline: what each pod did when, from its status and from the history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.views.why_values import NOW, at, ended, pod, tfjob, waits
from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import folder_name, read_record
from trainyard.objects import Json
from trainyard.views.timeline import Segment, timeline


def runs(since: float, **more: Any) -> Json:
    return {"state": {"running": {"startedAt": at(since)}}, **more}


def segments(*pods: Json, **more: Any) -> list[tuple[Any, ...]]:
    """The segments of the only lane: (phase, start, end) in seconds before NOW, then exit code and reason if it has
    them."""
    (lane,) = timeline(pods, **more)
    return [shown(segment) for segment in lane.segments]


def shown(segment: Segment) -> tuple[Any, ...]:
    end = None if segment.end is None else round(NOW - segment.end)
    more = () if segment.exit_code is None else (segment.exit_code, segment.reason)
    return (segment.phase, round(NOW - segment.start), end, *more)


def created(obj: Json, ago: float, started: float | None = None) -> Json:
    obj["metadata"]["creationTimestamp"] = at(ago)
    obj["status"]["startTime"] = None if started is None else at(started)
    return obj


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (created(pod("WORKER-0", {"state": {}}, "Pending"), 50), [("pending", 50, None)]),
        (
            created(pod("WORKER-0", waits("ContainerCreating"), "Pending"), 50, 40),
            [("pending", 50, 40), ("starting", 40, None)],
        ),
        (
            created(pod("WORKER-0", runs(30)), 50, 40),
            [("pending", 50, 40), ("starting", 40, 30), ("running", 30, None)],
        ),
        (
            created(pod("WORKER-0", {"state": ended(137, "OOMKilled", 10, startedAt=at(30))}, "Failed"), 50, 40),
            [("pending", 50, 40), ("starting", 40, 30), ("running", 30, 10, 137, "OOMKilled")],
        ),
        (  # the second run, after a back-off of five seconds
            created(
                pod("WORKER-0", runs(20, restartCount=1, lastState=ended(1, "Error", 25, startedAt=at(30)))), 40, 40
            ),
            [("starting", 40, 30), ("running", 30, 25, 1, "Error"), ("waiting", 25, 20), ("running", 20, None)],
        ),
        (
            created(
                pod("WORKER-0", waits("CrashLoopBackOff", lastState=ended(1, "Error", 25, startedAt=at(30)))), 40, 40
            ),
            [("starting", 40, 30), ("running", 30, 25, 1, "Error"), ("waiting", 25, None)],
        ),
        (
            created(pod("WORKER-0", {"state": {}}, "Failed"), 50, 50),
            [],
        ),  # evicted before its start: nothing is known of it
    ],
)
def test_the_segments_of_a_pod(observed: Json, expected: list[tuple[Any, ...]]) -> None:
    assert segments(observed) == expected


def test_a_lane_is_plain_json() -> None:
    observed = created(pod("WORKER-0", {"state": ended(1, ago=10, startedAt=at(30))}, "Failed"), 30, 30)
    observed["metadata"]["labels"]["trainyard.dev/attempt"] = "3"
    (lane,) = timeline([observed])
    assert json.loads(json.dumps(msgspec.to_builtins(lane))) == {
        "replica": "worker-0",
        "role": "worker",
        "index": "0",
        "attempt": 3,
        "pod": "worker-0-abcd-x",
        "uid": "p-WORKER-0",
        "node": "here",
        "segments": [{"phase": "running", "start": NOW - 30, "end": NOW - 10, "exitCode": 1, "reason": "Error"}],
    }


def test_the_container_of_the_kind_is_shown_and_not_its_sidecar() -> None:
    observed = created(pod("WORKER-0", runs(30)), 50, 50)
    sidecar = {"name": "istio-proxy", "restartCount": 0, **runs(45)}
    observed["status"]["containerStatuses"].insert(0, sidecar)
    assert segments(observed, container="tensorflow")[-1] == ("running", 30, None)
    assert segments(observed, container="gone")[-1] == ("running", 45, None)


def test_lanes_are_ordered_by_replica_and_then_by_age() -> None:
    pods = [created(pod(slot, runs(5), uid=f"{slot}-{ago}"), ago, ago) for slot, ago in ORDER]
    assert [(lane.replica, lane.uid.rpartition("-")[2]) for lane in timeline(pods)] == [
        ("master-0", "9"),
        ("worker-2", "30"),
        ("worker-2", "20"),
        ("worker-10", "40"),
    ]


ORDER = (("WORKER-10", 40), ("WORKER-2", 20), ("MASTER-0", 9), ("WORKER-2", 30))


def record_of(tmp_path: Path, *pods: Json) -> JobRecord:
    folder = tmp_path / folder_name("u", "default", "mnist", NOW)
    folder.mkdir()
    record = JobRecord(folder, {"uid": "u", "result": "", "where": "run"}, RetentionLimits())
    record.record_job(tfjob(), NOW)
    for listed_pod in pods:
        record.record_pod(listed_pod, gone=False)
    return record


def stored(record: JobRecord) -> list[Json]:
    record.snapshot("").write()
    read = read_record(record.folder)
    assert read is not None
    return read.pods


def crashing(number: int) -> Json:
    """The pod while its container's run `number` goes on: each run takes 5 s, each back-off 5 s."""
    last = ended(1, "Error", 1000 - 10 * number + 5, startedAt=at(1000 - 10 * number + 10)) if number > 1 else {}
    return created(pod("WORKER-0", runs(1000 - 10 * number, restartCount=number - 1, lastState=last)), 1000, 1000)


def test_the_history_has_the_runs_that_a_pod_has_forgotten(tmp_path: Path) -> None:
    crashes = [crashing(number) for number in range(1, 5)]
    recorded = stored(record_of(tmp_path, *crashes))
    (lane,) = timeline([crashes[-1]], recorded)
    assert [shown(segment) for segment in lane.segments] == [
        ("starting", 1000, 990),
        ("running", 990, 985, 1, "Error"),
        ("waiting", 985, 980),
        ("running", 980, 975, 1, "Error"),
        ("waiting", 975, 970),
        ("running", 970, 965, 1, "Error"),
        ("waiting", 965, 960),
        ("running", 960, None),
    ]
    assert timeline([], recorded) == [lane], "the record alone says the same"
    (alone,) = timeline([crashes[-1]])
    assert [segment.phase for segment in alone.segments] == ["starting", "running", "waiting", "running"]


def test_runs_that_the_history_left_out_are_no_back_off(tmp_path: Path) -> None:
    (lane,) = timeline([], stored(record_of(tmp_path, *(crashing(number) for number in range(1, 40)))))
    omitted = [shown(segment) for segment in lane.segments if segment.phase == "omitted"]
    assert omitted == [("omitted", 895, 710)]


def test_a_run_that_the_cluster_ended_is_cut_off(tmp_path: Path) -> None:
    recorded = stored(record_of(tmp_path, created(pod("WORKER-0", runs(30)), 50, 50)))
    assert segments(recorded=recorded, cut_off=NOW - 3) == [("starting", 50, 30), ("running", 30, 3)]
