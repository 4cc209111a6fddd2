"""Limits the writes in flight: the limit grows while the API server answers well and is halved when it is overloaded.

Additive increase, multiplicative decrease, as in TCP. Overload is an Unavailable error (429, 5xx, no answer), or an
answer that took several times the usual latency. Answers to requests sent before the last cut do not cut again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainyard.client import Unavailable

START, LEAST, MOST = 32.0, 2.0, 64.0
SLOW = 0.5  # seconds; faster than this is never called slow
SLOWER = 4.0  # times the usual


class Pace:
    """`async with pace.turn():` around each write."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = START
        self.running = 0
        self._clock = clock
        self._line: deque[asyncio.Future[None]] = deque()
        self._usual = 0.0
        self._last_cut = float("-inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._enter()
        began = self._clock()
        try:
            yield
        except Unavailable:
            self._cut(began)
            raise
        else:
            self._answered(began)
        finally:
            self._leave()

    async def _enter(self) -> None:
        if self.running < int(self.limit) and not self._line:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was our turn already, so it is the next one's now
                self._leave()
            raise

    def _leave(self) -> None:
        self.running -= 1
        while self._line and self.running < int(self.limit):
            turn = self._line.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    def _answered(self, began: float) -> None:
        took = self._clock() - began
        usual = self._usual or took
        if took > SLOW and took > SLOWER * usual:
            self._cut(began)
        else:
            self.limit = min(MOST, self.limit + 1.0 / self.limit)
        # What is usual falls at once and rises slowly: a server that is slow for good is not cut for ever.
        self._usual = min(took, usual * 1.05) if took < usual else usual * 1.05

    def _cut(self, began: float) -> None:
        if began > self._last_cut:
            self.limit = max(LEAST, self.limit / 2)
            self._last_cut = self._clock()
