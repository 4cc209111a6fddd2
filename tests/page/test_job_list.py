"""The rows of the list of jobs: their size, and of those that wait why they do and when they are looked at again."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from tests.page.browsing import rows_of
from tests.views.why_values import NOW, RUNNING, pod, tfjob, waits
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.page import job_list
from trainyard.page.job_list import COLUMNS, LOOK_SECONDS, ROWS_PER_FRAME, JobList, jobs_frame
from trainyard.page.observation import Observation

MESSAGE = COLUMNS.index("message")


class Clock:
    """Both clocks of the module; working out why a job waits takes `work` seconds."""

    def __init__(self) -> None:
        self.seconds, self.work = 0.0, 0.0

    def time(self) -> float:
        self.seconds += self.work
        return NOW + self.seconds

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(job_list, "time", clock)
    return clock


@pytest.fixture
def observation() -> Observation:
    observation = Observation(cast(ApiClient, None))
    observation._change_job(None, tfjob(RUNNING))
    return observation


def without_node() -> Json:
    waiting = pod("WORKER-0", waits(""), "Pending", creationTimestamp="2023-11-14T22:13:20Z")  # NOW
    del waiting["spec"]["nodeName"]
    waiting["status"] |= {"conditions": [], "containerStatuses": []}
    return waiting


def message(rows: JobList) -> Any:
    return (rows.live_row("u") or [])[MESSAGE]


def test_a_job_that_waits_is_looked_at_again_later_and_later(clock: Clock, observation: Observation) -> None:
    rows = JobList(observation, None)
    observation._change_pod(None, without_node())
    assert message(rows) == ""
    assert rows.next_look("u") == LOOK_SECONDS
    clock.seconds = LOOK_SECONDS - 0.1
    assert message(rows) == ""
    clock.seconds = LOOK_SECONDS
    assert message(rows) == "worker-0: no scheduler has handled its pod"
    assert rows.next_look("u") == 2 * LOOK_SECONDS
    clock.seconds = 5 * LOOK_SECONDS
    rows.live_row("u")
    assert rows.next_look("u") == 10 * LOOK_SECONDS
    for slot in ("MASTER-0", "WORKER-0", "WORKER-1"):
        observation._change_pod(None, pod(slot))
    assert (message(rows), rows.next_look("u")) == ("", float("inf"))


def test_a_why_that_takes_long_is_worked_out_less_often(clock: Clock, observation: Observation) -> None:
    rows, clock.work = JobList(observation, None, are_processes=False), 0.1
    observation._change_pod(None, pod("WORKER-0", waits("ImagePullBackOff"), "Pending"))
    assert "cannot be pulled" in message(rows)
    observation._change_pod(None, pod("WORKER-0", waits("InvalidImageName"), "Pending"))
    assert "cannot be pulled" in message(rows)
    clock.seconds = rows.next_look("u")
    assert 9.9 < clock.seconds < 10.2
    assert "the name of its image is invalid" in message(rows)


def test_the_why_of_a_failed_job_begins_with_the_cause() -> None:
    text = "TFJob mnist is failed because 1 Worker\nreplica(s) failed."
    job = tfjob(("Failed", "TFJobFailed", text)) | {"kind": "TFJob", "apiVersion": "kubeflow.org/v1"}
    role = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
    job["spec"] = {"tfReplicaSpecs": {"Worker": role}}
    observation = Observation(cast(ApiClient, None))
    observation._change_job(None, job)
    assert message(JobList(observation, None)) == "1 Worker replica(s) failed."


def test_10_000_jobs_are_a_megabyte() -> None:
    """W11, with uids and names as long as real ones, jobs of several namespaces, kinds and states in any order."""
    rows, random = [], Random(1)
    states = {"Succeeded": "all replicas have succeeded", "Failed": "worker-3: exit 1, ModuleNotFoundError: nltk"}
    for number in range(10_000):
        state, created = random.choice([*states]), NOW - 10.0 * number
        place, kind = random.choice(["default", "team-vision", "team-speech"]), random.choice(["PyTorchJob", "TfJob"])
        times = created, created + 2.0, created + 602.0
        uid = str(UUID(int=random.getrandbits(128)))
        rows.append([uid, place, kind, f"resnet-{number:05}", state, 0, 4, 0, *times, states[state], True])
    frames = [
        jobs_frame(rows[start : start + ROWS_PER_FRAME], [], reset=start == 0, more=True)
        for start in range(0, len(rows), ROWS_PER_FRAME)
    ]
    assert [list(row.values()) for frame in frames for row in rows_of(json.loads(frame))] == rows
    size = sum(map(len, frames))
    print(f"W11: {size:,} bytes of 10,000 jobs")
    assert size <= 1_000_000
