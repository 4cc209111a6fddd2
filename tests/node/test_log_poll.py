"""How often followed logs are looked at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.kubelet.api import container_logs
from trainyard.node.kubelet.api.container_logs import ContainerLog, LogOptions, read_log
from trainyard.node.kubelet.api.log_poll import LogPoll
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
