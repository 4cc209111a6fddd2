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
SLOW_SECONDS = 0.5  # seconds; faster than this is never called slow
SLOW_FACTOR = 4.0  # times the usual


class ConcurrencyLimiter:
    """`async with pace.turn():` around each write."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = START
        self.running = 0
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._usual_latency = 0.0
        self._last_decrease = float("-inf")

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await self._acquire()
        began = self._clock()
        try:
            yield
        except Unavailable:
            self._decrease(began)
            raise
        else:
            self._succeeded(began)
        finally:
            self._release()

    async def _acquire(self) -> None:
        if self.running < int(self.limit) and not self._waiters:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was our turn already, so it is the next one's now
                self._release()
            raise

    def _release(self) -> None:
        self.running -= 1
        while self._waiters and self.running < int(self.limit):
            turn = self._waiters.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    def _succeeded(self, began: float) -> None:
        took = self._clock() - began
        usual = self._usual_latency or took
        if took > SLOW_SECONDS and took > SLOW_FACTOR * usual:
            self._decrease(began)
        else:
            self.limit = min(MOST, self.limit + 1.0 / self.limit)
        # What is usual falls at once and rises slowly: a server that is slow for good is not cut for ever.
        self._usual_latency = min(took, usual * 1.05) if took < usual else usual * 1.05

    def _decrease(self, began: float) -> None:
        if began > self._last_decrease:
            self.limit = max(LEAST, self.limit / 2)
            self._last_decrease = self._clock()
