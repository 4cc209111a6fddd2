"""The followers of logs, against a scripted log: which run is which, broken streams, pods that go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest

from trainyard.cli.output import follow
from trainyard.cli.output.follow import LogFollowers, PrintedLog, newest_run
from trainyard.cli.output.screen import Descriptors, Screen
from trainyard.client import ApiClient, NotFound, Unavailable
from trainyard.objects import Json
from trainyard.objects.container_statuses import ContainerStatus

RUNNING: Json = {"running": {"startedAt": "2024-01-01T00:00:00Z"}}
ENDED: Json = {"terminated": {"exitCode": 1}}
PAUSING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}
STARTING: Json = {"waiting": {"reason": "ContainerCreating"}}


class Script(ApiClient):
    """A log as the script says: `now` and `previous` are what is answered, chunk by chunk; an exception is raised."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.now: list[bytes | Exception] = []
        self.previous: list[bytes] = []
        self.requests: list[str] = []
        self.tails: list[int | None] = []
        self.on_end: Callable[[], object] = lambda: None
        self.on_break: Callable[[], object] = lambda: None

    async def logs(self, *where: str, **parameters: Any) -> AsyncGenerator[bytes]:  # fewer words are needed here
        self.requests.append("previous" if parameters.get("previous") else "now")
        self.tails.append(parameters.get("tail_lines"))
        for part in list(self.previous if parameters.get("previous") else self.now):
            if isinstance(part, Exception):
                self.now.remove(part)
                self.on_break()
                raise part
            yield part
        if parameters.get("follow") or parameters.get("previous"):
            self.on_end()


def pod(state: Json, restarts: int = 0, phase: str = "Running") -> Json:
    container = {"name": "tensorflow", "state": state, "restartCount": restarts}
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [container]}}


async def printed(
    script: Script, report: Callable[[LogFollowers], object], tail: int | None = None, only: str = ""
) -> list[str]:
    """The lines on the screen when the followers have finished."""
    reader, writer = os.pipe()
    screen = Screen(Descriptors(writer, writer, writer), False, False, lambda: None)
    logs = LogFollowers(script, screen, lambda pod: "x-0", tail, only)
    report(logs)
    await asyncio.wait_for(logs.finish(ended_pods_only=False), 5)
    await screen.close()
    os.close(writer)
    with os.fdopen(reader) as text:
        return text.read().splitlines()


@pytest.mark.parametrize(
    ("state", "restarts", "run"),
    [
        (RUNNING, 0, 0),
        (ENDED, 2, 2),
        (PAUSING, 0, 0),
        (PAUSING, 3, 3),
        (STARTING, 0, -1),
        (STARTING, 1, 0),
        ({}, 0, -1),
    ],
)
def test_the_newest_run_that_has_begun_is_read_from_the_status(state: Json, restarts: int, run: int) -> None:
    status = ContainerStatus("main", {"state": state, "restartCount": restarts}, init=False)
    assert newest_run(status) == run


async def test_the_log_of_a_container_that_never_ran_is_not_requested() -> None:
    script = Script()
    assert await printed(script, lambda logs: logs.update_pod(pod(STARTING, phase="Pending"))) == []
    assert script.requests == []


async def test_a_run_that_ended_before_it_was_observed_is_printed_completely() -> None:
    script = Script()
    script.now = [b"one\ntw", b"o\nthree"]
    assert await printed(script, lambda logs: logs.update_pod(pod(ENDED, phase="Failed"))) == [
        "x-0 | one",
        "x-0 | two",
        "x-0 | three",
    ]


async def test_a_broken_log_stream_resumes_where_it_broke() -> None:
    script = Script()
    script.now = [b"one\ntw", Unavailable(0, "ConnectionLost", "gone"), b"o\n"]

    def report(logs: LogFollowers) -> None:
        logs.update_pod(pod(RUNNING))
        script_ends(script, logs)

    assert await printed(script, report) == ["x-0 | one", "x-0 | two"]


async def test_a_stream_that_breaks_after_the_end_of_the_pod_loses_no_last_bytes() -> None:
    """An API server's connection to the kubelet breaks while the last of the log is on its way."""
    script = Script()
    lost = [Unavailable(0, "ConnectionLost", str(number)) for number in range(2)]
    script.now = [b"one\ntw", *lost, b"o\nthe last line"]
    report = partial(LogFollowers.update_pod, pod=pod(ENDED, phase="Succeeded"))
    assert await printed(script, report) == ["x-0 | one", "x-0 | two", "x-0 | the last line"]


async def test_a_log_that_cannot_be_read_to_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RETRY_SECONDS", 0.001)
    script = Script()
    lost = [Unavailable(0, "ConnectionLost", str(number)) for number in range(follow.TRIES_AFTER_END + 2)]
    script.now = [b"one\n", *lost, b"two\n"]
    report = partial(LogFollowers.update_pod, pod=pod(ENDED, phase="Succeeded"))
    assert await printed(script, report) == ["x-0 | one", "x-0: the end of its output cannot be read"]


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ([b"one\ntwo\nthr", b"ee\nfour\n"], ["three", "four"]),
        ([b"w", b"o\nth", b"ree\n"], ["three"]),
        ([b"two\n"], []),
        ([b"eight\n", b"nine\n"], ["x-0: some of its output is gone", "eight", "nine"]),
    ],
    ids=["all", "its end", "nothing new", "not even that"],
)
async def test_after_a_break_only_the_new_part_of_a_truncated_log_is_printed(
    kept: list[bytes | Exception], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrintedLog, "END", 3)
    script = Script()
    script.now = [b"one\n", b"two\n", Unavailable(0, "ConnectionLost", "gone")]
    script.on_break = lambda: setattr(script, "now", kept)

    def report(logs: LogFollowers) -> None:
        logs.update_pod(pod(RUNNING))
        script_ends(script, logs)

    output = await printed(script, report)
    assert [line.removeprefix("x-0 | ") for line in output] == ["one", "two", *shown]


async def test_a_run_that_ends_while_its_stream_is_broken_is_printed_to_its_end() -> None:
    script = Script()
    script.now = [b"one\n", Unavailable(0, "ConnectionLost", "gone")]

    def report(logs: LogFollowers) -> None:
        def again() -> None:
            script.now, script.previous = [b"the second run\n"], [b"one\ntwo\n"]
            script.on_end = lambda: logs.update_pod(pod(ENDED, 1, "Succeeded"))
            logs.update_pod(pod(RUNNING, 1))

        logs.update_pod(pod(RUNNING))
        script.on_break = again

    assert await printed(script, report) == ["x-0 | one", "x-0 | two", "x-0 | the second run"]


def script_ends(script: Script, logs: LogFollowers) -> None:
    """The container is over when the script is read to its end."""
    script.on_end = lambda: logs.update_pod(pod(ENDED, phase="Succeeded"))


async def test_the_runs_of_a_container_follow_each_other() -> None:
    script = Script()
    script.now, script.previous = [b"run 0\n"], [b"run 0\n"]

    def second() -> None:
        script.now = [b"run 1\n"]
        script.on_end = lambda: None
        logs_of[0].update_pod(pod(ENDED, 1, "Failed"))

    logs_of: list[LogFollowers] = []

    def report(logs: LogFollowers) -> None:
        logs_of.append(logs)
        logs.update_pod(pod(RUNNING))
        script.on_end = second

    assert await printed(script, report) == ["x-0 | run 0", "x-0 | run 1"]


async def test_a_run_that_was_replaced_during_the_request_is_printed_from_previous() -> None:
    """We ask for run 0, but it has ended and been restarted: the answer is run 1."""
    script = Script()
    script.now, script.previous = [b"run 1\n"], [b"run 0\n"]

    def report(logs: LogFollowers) -> None:
        logs.update_pod(pod(RUNNING))
        script.on_end = lambda: logs.update_pod(pod(ENDED, 1, "Failed"))

    assert sorted(await printed(script, report)) == ["x-0 | run 0", "x-0 | run 1"]


@pytest.mark.parametrize("kept", [b"two\n", b"one\ntwo\n", b"one\ntwo\nthree\n"], ids=["its end", "all", "more"])
async def test_no_line_of_a_run_is_printed_twice_or_left_out(kept: bytes) -> None:
    """Of a long output a kubelet keeps the end; a short one may have had lines after the stream ended."""
    script = Script()
    script.now, script.previous = [b"one\ntwo\n"], [kept[:6], kept[6:]]

    def second(logs: LogFollowers) -> None:
        script.now, script.on_end = [b"the second run\n"], lambda: None
        logs.update_pod(pod(ENDED, 1, "Failed"))

    def report(logs: LogFollowers) -> None:
        logs.update_pod(pod(RUNNING))
        script.on_end = lambda: second(logs)

    all_ = b"one\ntwo\n" + kept[8:] + b"the second run\n"
    assert await printed(script, report) == [f"x-0 | {line}" for line in all_.decode().splitlines()]


async def test_the_previous_run_of_a_container_first_observed_in_its_second_run_is_printed() -> None:
    script = Script()
    script.now, script.previous = [b"run 1\n"], [b"run 0\n"]
    output = await printed(script, lambda logs: logs.update_pod(pod(ENDED, 1, "Failed")))
    assert output == ["x-0 | run 0", "x-0 | run 1"] and script.requests == ["previous", "now"]


async def test_runs_whose_logs_are_lost_are_reported() -> None:
    script = Script()
    script.now, script.previous = [b"run 3\n"], [b"run 2\n"]
    output = await printed(script, lambda logs: logs.update_pod(pod(ENDED, 3, "Failed")))
    assert output == ["x-0: the output of 2 earlier runs is gone", "x-0 | run 2", "x-0 | run 3"]


async def test_finishing_does_not_wait_for_a_deleted_pod() -> None:
    script = Script()
    script.now = [b"bye\n", NotFound(404, "NotFound", "no such pod")]

    def report(logs: LogFollowers) -> None:
        logs.update_pod(pod(RUNNING))
        logs.delete_pod(pod(RUNNING))

    assert await printed(script, report) == ["x-0 | bye"]


async def test_of_several_containers_each_has_its_name_behind_the_replica() -> None:
    script = Script()
    script.now = [b"hi\n"]
    ended_pod = pod(ENDED, phase="Succeeded")
    ended_pod["status"]["containerStatuses"].append({"name": "side", "state": ENDED, "restartCount": 0})
    output = await printed(script, lambda logs: logs.update_pod(ended_pod))
    assert {line.split(" ")[0] for line in output} == {"x-0/tensorflow", "x-0/side"}


async def test_with_a_tail_only_the_current_run_is_cut_and_the_next_is_complete() -> None:
    script = Script()
    script.now = [b"end of run 3\n"]

    def fourth() -> None:
        script.now = [b"run 4\n"]
        script.on_end = lambda: None
        logs_of[0].update_pod(pod(ENDED, 4, "Failed"))

    logs_of: list[LogFollowers] = []

    def report(logs: LogFollowers) -> None:
        logs_of.append(logs)
        logs.update_pod(pod(RUNNING, 3))
        script.on_end = fourth

    assert await printed(script, report, tail=1) == ["x-0 | end of run 3", "x-0 | run 4"]
    assert (script.requests, script.tails) == (["now", "now"], [1, None])


async def test_with_a_tail_a_broken_stream_resumes_from_now() -> None:
    script = Script()
    script.now = [b"two\n", Unavailable(0, "ConnectionLost", "gone")]
    await printed(script, lambda logs: logs.update_pod(pod(RUNNING)) or script_ends(script, logs), tail=1)
    assert script.tails == [1, 0]


async def test_only_the_selected_container_is_followed() -> None:
    script = Script()
    script.now = [b"hi\n"]
    ended_pod = pod(ENDED, phase="Succeeded")
    ended_pod["status"]["containerStatuses"].append({"name": "side", "state": ENDED, "restartCount": 0})
    assert await printed(script, lambda logs: logs.update_pod(ended_pod), only="side") == ["x-0/side | hi"]


async def test_a_log_without_further_data_is_abandoned_and_reported() -> None:
    class Hung(Script):
        async def logs(self, *where: str, **parameters: Any) -> AsyncGenerator[bytes]:
            yield b"first\n"
            await asyncio.Event().wait()

    def update(logs: LogFollowers) -> None:
        logs.finish = partial(logs.finish, stalled_after=0.05)  # type: ignore[method-assign]
        logs.update_pod(pod(ENDED, phase="Failed"))

    assert await printed(Hung(), update) == [
        "x-0 | first",
        "x-0: the rest of the output cannot be read: no answer for 0.05 s",
    ]


async def test_a_log_with_further_data_is_printed_to_its_end() -> None:
    class Slow(Script):
        async def logs(self, *where: str, **parameters: Any) -> AsyncGenerator[bytes]:
            for number in range(5):
                await asyncio.sleep(0)
                yield f"{number}\n".encode()
                await turn.wait()
                turn.clear()

    turn = asyncio.Event()
    original = asyncio.wait

    async def wait(tasks: Any, timeout: float) -> Any:
        """Every wait of `finish` runs into its timeout, and each time the log has grown by one chunk."""
        result = await original(tasks, timeout=0.01)
        turn.set()
        await original(tasks, timeout=0.01)
        return result

    def update(logs: LogFollowers) -> None:
        logs.update_pod(pod(ENDED, phase="Failed"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainyard.cli.output.follow.asyncio.wait", wait)
        assert await printed(Slow(), update) == [f"x-0 | {number}" for number in range(5)]
