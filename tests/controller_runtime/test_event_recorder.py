"""The event recorder: equal events are counted, in a bounded number of requests, and recording blocks nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.waiting import until_async
from trainyard.client import ApiClient, ApiRequest, Forbidden, NotFound, Unavailable
from trainyard.controller_runtime import event_recorder
from trainyard.controller_runtime.event_recorder import (
    BUFFER_SIZE,
    BURST,
    MAX_RECENT,
    MAX_TRIES,
    REFILL_SECONDS,
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
        self.on_first_request: Callable[[], None] = lambda: None

    async def send(self, request: ApiRequest) -> bytes:
        on_first_request, self.on_first_request = self.on_first_request, lambda: None
        on_first_request()
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


async def sent_after(api: ScriptedApi, answers: list[Any]) -> list[Json]:
    """The bodies that are sent until as many answers are given."""
    api.answers, api.done, api.sent = answers, asyncio.Event(), []
    await asyncio.wait_for(api.done.wait(), 10)
    return api.sent


async def test_equal_events_are_one_event_with_a_count_and_the_last_time() -> None:
    """As `kubectl describe` shows the second creation of a pod after a suspend and resume."""
    api, wall = ScriptedApi([None]), Clock()
    recorder = EventRecorder(api, wall, Clock())
    for _ in range(2):
        recorder.record(JOB, (CREATED,), SOURCE)  # not sent yet: one request
    (first,) = await sent_events(recorder, api)
    assert (first["count"], first["firstTimestamp"], first["lastTimestamp"]) == (2, *["1970-01-01T00:16:40Z"] * 2)
    running = asyncio.create_task(recorder.run())
    wall.now += 3600
    repeated: Json = {"count": 3, "lastTimestamp": "1970-01-01T01:16:40Z"}
    recorder.record(JOB, (CREATED,), SOURCE)
    assert await sent_after(api, [None]) == [repeated]
    recorder.record(JOB, (CREATED,), SOURCE)
    gone = NotFound(404, "NotFound", "the API server keeps events for an hour")
    patch, again = await sent_after(api, [gone, None])
    assert patch["count"] == 4 and again == first | patch
    running.cancel()


async def test_a_repetition_that_may_not_be_patched_is_a_new_event(caplog: pytest.LogCaptureFixture) -> None:
    api, refused = ScriptedApi([None]), Forbidden(403, "Forbidden", "cannot patch resource events")
    recorder = EventRecorder(api, lambda: 0.0, Clock())
    recorder.record(JOB, (CREATED,), SOURCE)
    (first,) = await sent_events(recorder, api)
    running = asyncio.create_task(recorder.run())
    names = {first["metadata"]["name"]}
    for count in (2, 3):
        recorder.record(JOB, (CREATED,), SOURCE)
        _, again = await sent_after(api, [refused, None])
        assert (again["count"], again["reason"]) == (count, CREATED.reason)
        names.add(again["metadata"]["name"])
    running.cancel()
    assert (len(names), recorder.dropped) == (3, 0)
    (warning,) = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert "verb patch" in warning


async def test_repetitions_are_patched_at_a_bounded_rate_and_all_are_counted() -> None:
    api, clock = ScriptedApi([None] * (1 + BURST)), Clock()
    recorder = EventRecorder(api, lambda: 0.0, clock)
    running = asyncio.create_task(recorder.run())
    for sent in range(1, BURST + 2):
        recorder.record(JOB, (RUNNING,), SOURCE)
        await until_async(lambda sent=sent: len(api.sent) == sent, "the event is sent")
    for _ in range(100):
        recorder.record(JOB, (RUNNING,), SOURCE)
    assert not recorder.waiting
    recorder.record(JOB, (FAILED,), SOURCE)  # a new event needs no token
    assert [event["reason"] for event in await sent_after(api, [None])] == ["JobFailed"]
    clock.now += REFILL_SECONDS
    recorder.record(JOB, (RUNNING,), SOURCE)
    recorder.record(JOB, (CREATED,), SOURCE)
    patch, created = await sent_after(api, [None, None])
    assert patch["count"] == BURST + 102 and created["count"] == 1
    running.cancel()


async def test_a_repetition_before_the_first_event_is_accepted_is_counted_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "RETRY_SECONDS", (0.001, 0.002))
    api = ScriptedApi([])
    recorder = EventRecorder(api, lambda: 0.0)
    recorder.record(JOB, (RUNNING,), SOURCE)
    api.on_first_request = lambda: recorder.record(JOB, (RUNNING,), SOURCE)
    running = asyncio.create_task(recorder.run())
    await sent_after(api, [Unavailable(503, "ServiceUnavailable", ""), None])
    assert [sent["count"] for sent in api.sent] == [1, 2]
    running.cancel()


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
