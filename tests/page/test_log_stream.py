"""The logs that open pages show: what they get of logs that grow faster than they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.support.waiting import until_async
from trainyard.client import ApiError, Unavailable
from trainyard.objects import Json
from trainyard.objects.log_files import left_out_note
from trainyard.page import log_stream
from trainyard.page.live import LogTopic
from trainyard.page.log_stream import FIRST_LINES, MAX_LINES, MAX_WAITING, SMALL_CHUNK, LogLines, LogStreams


def pod(index: int = 0, restarts: int = 0) -> Json:
    labels = {"trainyard.dev/role": "WORKER", "trainyard.dev/index": str(index)}
    status = {"name": "main", "restartCount": restarts, "state": {"running": {}}}
    metadata = {"name": f"p{index}", "namespace": "default", "uid": f"uid-{index}", "labels": labels}
    return {"metadata": metadata, "status": {"phase": "Running", "containerStatuses": [status]}}


class Api:
    """Logs that a test writes: `requests` has what was asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self._logs: dict[str, asyncio.Queue[bytes | Exception | None]] = {}

    def log(self, name: str = "p0") -> asyncio.Queue[bytes | Exception | None]:
        return self._logs.setdefault(name, asyncio.Queue())

    async def logs(self, namespace: str, name: str, container: str, **options: Any) -> AsyncGenerator[bytes, None]:
        self.requests.append((name, options["tail_lines"]))
        while (chunk := await self.log(name).get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def write(self, *chunks: bytes | Exception | None, name: str = "p0") -> None:
        for chunk in chunks:
            self.log(name).put_nowait(chunk)
        await until_async(lambda: asyncio.sleep(0, self.log(name).empty()), "the log is read", pause=0.0)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def streams(api: Api) -> LogStreams:
    return LogStreams(api)  # type: ignore[arg-type]  # a stand-in


def lines(streams: LogStreams, *pods: Json, replica: str = "*") -> LogLines:
    return LogLines(streams, lambda: list(pods), replica)


def texts(taken: tuple[list[tuple[str, str]], int]) -> list[str]:
    return [text for _, text in taken[0]]


async def test_tabs_share_one_stream_and_each_gets_all(api: Api, streams: LogStreams) -> None:
    first = lines(streams, pod())
    await api.write(b"a\nb\n")
    second = lines(streams, pod())
    assert second.has_news
    await api.write(b"c\nrest")
    assert first.take() == second.take() == ([("worker-0", "a"), ("worker-0", "b"), ("worker-0", "c")], 0)
    assert not first.has_news
    await api.write(b" of it\n")
    assert first.take() == second.take() == ([("worker-0", "rest of it")], 0)
    assert api.requests == [("p0", FIRST_LINES)]
    await asyncio.gather(first.close(), second.close())


async def test_a_stream_lives_as_long_as_a_tab_shows_it(api: Api, streams: LogStreams) -> None:
    first, second = lines(streams, pod()), lines(streams, pod())
    await first.close()
    await api.write(b"a\n")
    assert texts(second.take()) == ["a"]
    await second.close()
    third = lines(streams, pod())
    await api.write(b"b\n")
    assert texts(third.take()) == ["b"] and len(api.requests) == 2
    await third.close()


async def test_what_comes_too_fast_is_counted_and_the_last_lines_are_shown(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod())
    text = b"".join(b"%07d\n" % number for number in range(4 * MAX_WAITING // 8))
    await api.write(*(text[begin : begin + 65536] for begin in range(0, len(text), 65536)))
    taken, left_out = reader.take()
    assert taken[-1] == ("worker-0", f"{4 * MAX_WAITING // 8 - 1:07}") and len(taken) == MAX_LINES
    assert left_out + 8 * MAX_LINES == len(text)
    await api.write(b"the next\n")
    assert reader.take() == ([("worker-0", "the next")], 0)
    await reader.close()


async def test_what_a_node_has_left_out_is_counted(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod())
    await api.write(b"a\nb", left_out_note(1000), b"rest of a line\nc\n")
    taken, left_out = reader.take()
    assert taken == [("worker-0", "a"), ("worker-0", "c")] and left_out == 1000 + len("rest of a line\n")
    await reader.close()


async def test_a_tab_that_does_not_take_its_lines_costs_a_bounded_memory(api: Api, streams: LogStreams) -> None:
    slow, quick = lines(streams, pod()), lines(streams, pod())
    shown: list[str] = []
    for number in range(2 * MAX_LINES):
        await api.write(b"%07d\n" % number)
        shown += texts(quick.take())
    assert len(shown) == 2 * MAX_LINES
    taken, left_out = slow.take()
    assert (len(taken), left_out) == (MAX_LINES, 8 * MAX_LINES)
    await asyncio.gather(slow.close(), quick.close())


async def test_a_line_without_an_end_is_bounded(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod())
    await api.write(*[b"x" * 65536] * 5, b"y\nnext\n")
    taken, left_out = reader.take()
    assert [text for _, text in taken] == ["next"] and left_out > MAX_WAITING
    await reader.close()


async def test_lines_of_several_replicas_keep_their_order(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod(0), pod(1))
    for number in range(3):
        await api.write(b"%d\n" % number, name="p0")
        await api.write(b"%d\n" % number, name="p1")
    assert reader.take()[0] == [(f"worker-{index}", str(number)) for number in range(3) for index in range(2)]
    await reader.close()


async def test_the_last_line_needs_no_end_and_a_refusal_is_shown(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod(0), pod(1))
    await api.write(b"last", None, name="p0")
    await api.write(ApiError(403, "Forbidden", "you may not"), name="p1")
    assert texts(reader.take()) == ["last", "(its log cannot be shown: you may not)"]
    await reader.close()


async def test_after_an_outage_the_log_goes_on(api: Api, streams: LogStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "RETRY_SECONDS", 0.0)
    reader = lines(streams, pod())
    await api.write(b"a\n", Unavailable(0, "ConnectionLost", "away"), b"b\n")
    assert texts(reader.take()) == ["a", "b"]
    assert api.requests == [("p0", FIRST_LINES), ("p0", 0)]
    await reader.close()


async def test_a_new_run_is_shown_from_its_beginning(api: Api, streams: LogStreams) -> None:
    pods = [pod()]
    reader = LogLines(streams, lambda: pods, "*")
    await api.write(b"first run\n", None)
    pods[:] = [pod(restarts=1)]
    reader.follow_pods()
    await api.write(b"second run\n")
    assert texts(reader.take()) == ["first run", "second run"]
    assert api.requests == [("p0", FIRST_LINES), ("p0", None)]
    await reader.close()


async def test_a_page_is_woken_once_until_it_takes_the_lines(api: Api, streams: LogStreams) -> None:
    reader, woken = lines(streams, pod()), list[int]()
    reader.on_news = lambda: woken.append(1)
    await api.write(b"a\n", b"b\n", b"c\n")
    assert len(woken) == 1
    reader.take()
    await api.write(b"d\n")
    assert len(woken) == 2
    await reader.close()


async def test_a_part_of_a_line_wakes_no_page(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod())
    await api.write(b"a")
    assert not reader.has_news
    await api.write(b"b\n")
    assert reader.has_news and texts(reader.take()) == ["ab"]
    await api.write(b"c", None)
    assert reader.has_news and texts(reader.take()) == ["c"]
    await reader.close()


async def test_a_frame_has_lines_or_what_was_left_out(api: Api, streams: LogStreams) -> None:
    reader = lines(streams, pod())
    topic = LogTopic("uid", reader)
    await api.write(b"x" * (SMALL_CHUNK + 1))  # it is split when the page takes it: it may have lines
    assert topic.is_due() and [frame async for frame in topic.frames()] == []
    await api.write(b"\n")
    assert len([frame async for frame in topic.frames()]) == 1
    await reader.close()
