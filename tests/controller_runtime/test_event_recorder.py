"""The event recorder: equal events are recorded once in a while, and recording blocks nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainyard.client import ApiClient, ApiRequest, Forbidden, Unavailable
from trainyard.controller_runtime import event_recorder
from trainyard.controller_runtime.event_recorder import (
    BUFFER_SIZE,
    DEDUPLICATION_SECONDS,
    MAX_RECENT,
    MAX_TRIES,
    EventRecorder,
)
from trainyard.core import Event
from trainyard.objects import Json, decode

JOB: Json = {
    "apiVersion": "tensorflow.org/v1alpha1",
    "kind": "TfJob",
    "metadata": {"namespace": "n", "name": "mnist", "uid": "u1"},
}
CREATED = Event("Normal", "SuccessfulCreatePod", "Created pod: mnist-worker-0")
RUNNING = Event("Normal", "JobRunning", "at least one replica runs")
SOURCE = "trainyard-operator"
FAILED = Event("Warning", "JobFailed", "x" * 5000)


class ScriptedApi(ApiClient):
    """Answers requests from a list (an exception in it is raised) and keeps their bodies in `sent`."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__("http://listening")
        self.answers = answers
        self.sent: list[Json] = []
        self.done = asyncio.Event()

    async def send(self, request: ApiRequest) -> bytes:
        self.sent.append(decode(request.body or b"{}"))
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return b"{}"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def sent_events(recorder: EventRecorder, api: ScriptedApi) -> list[Json]:
    running = asyncio.create_task(recorder.run())
    await asyncio.wait_for(api.done.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return api.sent


async def test_an_equal_event_is_written_again_only_after_a_while() -> None:
    clock, api = Clock(), ScriptedApi([None, None])
    recorder = EventRecorder(api, lambda: 0.0, clock)
    for _ in range(5):
        recorder.record(JOB, (RUNNING,), SOURCE)
    clock.now += DEDUPLICATION_SECONDS + 1
    recorder.record(JOB, (RUNNING, RUNNING), SOURCE)
    assert [event["reason"] for event in await sent_events(recorder, api)] == ["JobRunning", "JobRunning"]


async def test_an_event_names_the_job_and_fits_the_api() -> None:
    api = ScriptedApi([None])
    recorder = EventRecorder(api, lambda: 0.0)
    recorder.record(JOB, (FAILED,), SOURCE)
    (event,) = await sent_events(recorder, api)
    assert event["involvedObject"] == {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "namespace": "n",
        "name": "mnist",
        "uid": "u1",
    }
    assert event["metadata"]["namespace"] == "n" and event["metadata"]["name"].startswith("mnist.")
    assert event["source"] == {"component": SOURCE}
    assert (event["type"], event["reason"], len(event["message"])) == ("Warning", "JobFailed", 1024)


async def test_a_refused_event_does_not_silence_the_next() -> None:
    api = ScriptedApi([Forbidden(403, "Forbidden", "no"), RuntimeError("a bug"), None])
    recorder = EventRecorder(api, lambda: 0.0)
    for number in range(3):
        recorder.record(JOB, (Event("Normal", f"Reason{number}", ""),), SOURCE)
    assert [event["reason"] for event in await sent_events(recorder, api)] == ["Reason0", "Reason1", "Reason2"]
    assert recorder.dropped == 2


async def test_an_event_is_sent_again_while_the_server_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "RETRY_SECONDS", (0.001, 0.002))
    away = Unavailable(503, "ServiceUnavailable", "starting")
    api = ScriptedApi([away, None, *[away] * MAX_TRIES, None])
    recorder = EventRecorder(api, lambda: 0.0)
    for number in range(3):
        recorder.record(JOB, (Event("Normal", f"Reason{number}", ""),), SOURCE)
    sent = [event["reason"] for event in await sent_events(recorder, api)]
    assert sent == ["Reason0"] * 2 + ["Reason1"] * MAX_TRIES + ["Reason2"]
    assert recorder.dropped == 1


async def test_beyond_the_size_of_the_buffer_the_oldest_event_is_dropped_without_blocking() -> None:
    api = ScriptedApi([None] * BUFFER_SIZE)
    recorder = EventRecorder(api, lambda: 0.0)
    recorder.record(JOB, tuple(Event("Normal", f"Reason{number}", "") for number in range(BUFFER_SIZE + 1)), SOURCE)
    sent = await sent_events(recorder, api)
    assert len(sent) == BUFFER_SIZE and sent[0]["reason"] == "Reason1"
    assert recorder.dropped == 1


def test_the_recorder_remembers_a_bounded_number_of_events() -> None:
    """Thousands of short jobs within ten minutes: each leaves an event that is equal to no other."""
    recorder = EventRecorder(ScriptedApi([]), clock=Clock())
    for number in range(MAX_RECENT + 10):
        recorder.record({**JOB, "metadata": {**JOB["metadata"], "uid": f"u{number}"}}, [RUNNING], SOURCE)
    assert len(recorder._recent) == MAX_RECENT


async def test_an_event_that_may_wait_is_sent_with_one_that_may_not_or_in_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(event_recorder, "MAX_WAIT", 3600.0)
    api = ScriptedApi([None, None])
    recorder = EventRecorder(api, lambda: 0.0)
    running = asyncio.create_task(recorder.run())
    recorder.record(JOB, [CREATED], SOURCE, may_wait=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not api.sent
    recorder.record(JOB, [RUNNING], SOURCE)
    await asyncio.wait_for(api.done.wait(), 10)
    monkeypatch.setattr(event_recorder, "QUIET_SECONDS", 0.01)
    api.answers, api.done = [None], asyncio.Event()
    recorder.record(JOB, [FAILED], SOURCE, may_wait=True)
    await asyncio.wait_for(api.done.wait(), 10)
    assert [sent["reason"] for sent in api.sent] == ["SuccessfulCreatePod", "JobRunning", "JobFailed"]
    running.cancel()
