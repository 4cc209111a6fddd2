"""How often followed logs are looked at."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.kubelet.api import container_logs
from trainyard.node.kubelet.api.container_logs import ContainerLog, LogOptions, read_log
from trainyard.node.kubelet.api.log_poll import LogPoll
from trainyard.objects import log_files
from trainyard.objects.log_files import LEFT_OUT, PIECE_SIZE

LOOKS = 6
PIECES = 20


async def pauses(monkeypatch: pytest.MonkeyPatch, offset: int, followers: int) -> list[float]:
    """The pauses, in ms, before the first LOOKS looks at empty logs of which `offset` bytes have been read."""
    loop, recorded = asyncio.get_running_loop(), list[float]()

    def call_soon(delay: float, callback: Callable[[], Any]) -> asyncio.Handle:
        recorded.append(round(1000 * delay, 1))
        return loop.call_soon(callback)

    monkeypatch.setattr(loop, "call_later", call_soon)
    poll, fd = LogPoll(), os.open(os.devnull, os.O_RDONLY)
    try:
        await asyncio.gather(*(poll.wait(fd, offset, lambda: len(recorded) == LOOKS) for _ in range(followers)))
    finally:
        os.close(fd)
    return recorded


@pytest.mark.parametrize(
    ("offset", "followers", "expected"),
    [
        (0, 1, [1.4, 1.6, 2.0, 2.4, 2.8, 3.5]),
        (0, 4, [1.4, 5.6, 6.6, 7.9, 9.4, 11.4]),
        (80, 1, [10.4] * LOOKS),
        (80, 50, [10.4, *[30.0] * (LOOKS - 1)]),
        (0, 300, [1.4, *[50.0] * (LOOKS - 1)]),
    ],
)
async def test_an_empty_log_is_looked_at_soon_and_many_logs_seldom(
    monkeypatch: pytest.MonkeyPatch, offset: int, followers: int, expected: list[float]
) -> None:
    assert await pauses(monkeypatch, offset, followers) == expected


async def test_a_reader_that_never_waits_lets_the_loop_serve_others(tmp_path: Path) -> None:
    """One in the same process, of a log that grows faster than it is read: a connection would make it wait."""
    path = tmp_path / "main" / "1.log"
    path.parent.mkdir()
    path.write_bytes(b"x" * (PIECES * PIECE_SIZE))
    served = 0

    async def serve() -> None:
        nonlocal served
        while True:
            served += 1
            await asyncio.sleep(0)

    server = asyncio.create_task(serve())
    log = ContainerLog(path, lambda: True)
    assert len([piece async for piece in read_log(log, LogOptions(follow=True), LogPoll())]) == PIECES
    server.cancel()
    assert served >= PIECES


async def test_a_reader_of_the_newest_bytes_gets_the_end_of_a_log_and_how_much_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_logs, "NEWEST_SECONDS", 0.0)
    path = tmp_path / "main" / "1.log"
    path.parent.mkdir()
    path.write_bytes(b"x" * (PIECES * PIECE_SIZE) + b"end\n")
    log = ContainerLog(path, lambda: True)
    options = LogOptions(follow=True, newest=PIECE_SIZE)
    read = b"".join([piece async for piece in read_log(log, options, LogPoll())])
    left_out = LEFT_OUT.search(read)
    assert left_out is not None and read.endswith(b"xend\n") and len(read) < 5 * PIECE_SIZE
    assert len(read) - len(left_out[0]) + int(left_out[1]) == path.stat().st_size


def written(tmp_path: Path, text: bytes) -> ContainerLog:
    """The log of a run that has ended."""
    path = tmp_path / "main" / "1.log"
    path.parent.mkdir()
    path.write_bytes(text)
    return ContainerLog(path, lambda: True)


async def test_a_line_without_an_end_is_not_collected_for_its_timestamp(tmp_path: Path) -> None:
    log = written(tmp_path, b"x" * (PIECES * PIECE_SIZE))
    read = [piece async for piece in read_log(log, LogOptions(timestamps=True), LogPoll())]
    assert len(read) == PIECES and max(map(len, read)) < 2 * PIECE_SIZE
    assert b"".join(read).endswith(b"Z " + b"x" * (PIECES * PIECE_SIZE))


async def test_each_line_has_a_timestamp_whatever_piece_it_is_in(tmp_path: Path) -> None:
    text = b"".join(b"%07d\n" % number for number in range(PIECE_SIZE // 4)) + b"the last"
    log = written(tmp_path, text)
    read = b"".join([piece async for piece in read_log(log, LogOptions(timestamps=True), LogPoll())])
    assert [line.partition(b"Z ")[2] for line in read.split(b"\n")] == text.split(b"\n")


async def test_the_last_lines_are_looked_for_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tailLines` may be larger than the number of lines: then the whole file is read."""
    threads, tail_offset = list[int](), log_files.tail_offset

    def noted_tail_offset(file: FileIO, lines: int) -> int:
        threads.append(threading.get_ident())
        return tail_offset(file, lines)

    monkeypatch.setattr(log_files, "tail_offset", noted_tail_offset)
    log = written(tmp_path, b"1\n2\n3\n")
    assert [piece async for piece in read_log(log, LogOptions(tail=2), LogPoll())] == [b"2\n3\n"]
    assert threads != [] and threading.get_ident() not in threads
