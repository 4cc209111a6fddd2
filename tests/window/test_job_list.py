"""The rows of the list of jobs that wait: why they do, and when they are looked at again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.views.why_values import NOW, RUNNING, pod, tfjob, waits
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.window import job_list
from trainyard.window.job_list import COLUMNS, LOOK_SECONDS, JobList
from trainyard.window.observation import Observation

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
    seen = Observation(cast(ApiClient, None))
    seen._change_job(None, tfjob(RUNNING))
    return seen


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
