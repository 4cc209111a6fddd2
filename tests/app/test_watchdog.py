"""The watchdog: a blocked event loop is logged with its stack, and a reconcile without progress fails /healthz."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tests.support.waiting import until
from trainyard.app.watchdog import Stall, Watchdog


async def test_a_blocked_event_loop_is_logged_once_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def a_long_sum() -> None:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            sum(range(1000))

    watchdog = Watchdog(blocked=0.6)
    with caplog.at_level(logging.ERROR):
        watchdog.start()
        await asyncio.sleep(0.1)
        a_long_sum()
        await asyncio.sleep(0.8)
        await watchdog.stop()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "event loop is blocked" in message and "a_long_sum (test_watchdog.py:" in message


async def test_the_longest_stall_of_the_last_minute_is_known_with_its_place() -> None:
    seconds = [0.0]
    stalls: list[Stall] = []
    watchdog = Watchdog(clock=lambda: time.monotonic() + seconds[0], on_stall=stalls.append)
    watchdog.start()
    assert watchdog.longest_stall() is None

    def block_until_noted(count: int) -> None:
        until(lambda: len(stalls) >= count, "the stall is noted while it lasts")

    block_until_noted(3)
    await asyncio.sleep(0.5)
    stall = watchdog.longest_stall()
    assert stall is not None and stall.seconds >= 1.0 and "block_until_noted" in stall.where
    assert stall == stalls[-1] and len({stall.since for stall in stalls}) == 1
    seconds[0] += 62
    assert watchdog.longest_stall() is None
    await watchdog.stop()


def test_a_stall_is_forgotten_a_minute_after_its_end() -> None:
    now = 50.0
    watchdog = Watchdog(clock=lambda: now)
    long, short = Stall(50.0, "a (a.py:1)", 0.0), Stall(2.0, "b (b.py:1)", 98.0)
    watchdog._note_stall(long)
    now = 100.0
    watchdog._note_stall(short)
    watchdog._note_stall(Stall(30.0, "_run_once (base_events.py:1) > select (selectors.py:1)", 70.0))
    assert watchdog.longest_stall() == long
    now = 111.0
    assert watchdog.longest_stall() == short


async def test_a_running_event_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(blocked=1.0)
    with caplog.at_level(logging.ERROR):
        watchdog.start()
        for _ in range(15):
            await asyncio.sleep(0.1)
        await watchdog.stop()
    assert not caplog.records


def test_a_reconcile_without_progress_is_reported_as_hung() -> None:
    now = 0.0
    watchdog = Watchdog(hung=180, clock=lambda: now)
    assert watchdog.unhealthy_reason(1, (5, 7)) == ""
    now = 179
    assert watchdog.unhealthy_reason(1, (5, 7)) == ""
    now = 180
    assert watchdog.unhealthy_reason(1, (5, 7)) == "a reconcile has made no progress for 180 s"


@pytest.mark.parametrize(("held", "done"), [(0, (5, 7)), (1, (6, 7)), (1, (5, 8))])
def test_a_reconcile_with_progress_and_an_idle_worker_are_not_hung(held: int, done: tuple[int, int]) -> None:
    now = 0.0
    watchdog = Watchdog(hung=180, clock=lambda: now)
    watchdog.unhealthy_reason(1, (5, 7))
    now = 1000
    assert watchdog.unhealthy_reason(held, done) == ""
    now = 1179
    assert watchdog.unhealthy_reason(1, done) == ""
