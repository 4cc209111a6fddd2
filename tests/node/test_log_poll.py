"""How often followed logs are looked at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from trainyard.node.kubelet.api.log_poll import LogPoll

LOOKS = 6


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
