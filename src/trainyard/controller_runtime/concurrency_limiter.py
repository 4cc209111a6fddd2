"""Limits the concurrent writes: the limit grows with each normal answer of the API server and is halved on overload.

Slow start, additive increase, multiplicative decrease, as in TCP: the limit begins low, because each further concurrent
write opens a connection, and TLS handshakes would delay the first writes; it doubles with each round of answers up to
`threshold`, then grows by one a round.

While others send a few writes, a job that creates thousands of objects (BIG_BATCH) makes room for them: the limit falls
to ROOM_LIMIT at once, the big job uses BIG_SHARE of it only, and the limit falls on by one a round while the answers to
the big job take longer than NEIGHBOUR_LATENCY and several times the lowest latency, which is that of a server where
nothing waits. When nobody has sent a write for NEIGHBOUR_SECONDS, the limit doubles again.
Measured in turns with a limit that falls for a job that is alone, too, where answers take over 50 ms: 1,000 replicas
with their Services 3.3 s instead of 4.4, a TfJob of 1,000 4.6 s instead of 6.7 (1.15 instead of 1.70 times the time of
the same objects by themselves); beside a job of 2,000, the slowest of a hundred one-pod jobs waited 104 to 139 ms for
its pod instead of 126 to 141. Without the fall to ROOM_LIMIT it waited 700 ms.

Overload is an Unavailable error (429, 5xx, no answer), or an answer that took several times the usual latency. Answers
to requests sent before the last decrease cause no further decrease.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from types import TracebackType

from trainyard.client import Unavailable
from trainyard.controller_runtime.fair_queue import FairQueue

INITIAL_LIMIT, MIN_LIMIT, MAX_LIMIT = 4.0, 2.0, 64.0  # the limit at first, at least, at most (concurrent writes)
INITIAL_THRESHOLD = 32.0  # concurrent writes
MIN_SLOW_LATENCY = 0.5  # an answer within this latency is never slow
SLOW_FACTOR = 4.0  # an answer is slow above this multiple of the usual latency
BIG_BATCH = 16  # writes of one object; above it the object leaves room for its neighbours:
ROOM_LIMIT = 16.0  # the limit (concurrent writes) is then this at most
BIG_SHARE = 0.15  # of the limit, above which the object gets no further slot
NEIGHBOUR_LATENCY = 0.015  # seconds; a neighbour's job waits for three requests, one after the other
NEIGHBOUR_SECONDS = 0.5  # so long after the last write of a small batch there are neighbours
LOWEST_SECONDS = 60.0  # the lowest latency is that of so many seconds at least


class ConcurrencyLimiter:
    """A semaphore with a varying `limit`: each write is sent inside `async with limiter.slot(namespace, uid):`.
    `running` counts the slots in use; waiting callers get slots by the rules of FairQueue. `clock` returns monotonic
    seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = INITIAL_LIMIT
        self.threshold = INITIAL_THRESHOLD
        self.running = 0
        self._clock = clock
        self._waiters: FairQueue[asyncio.Future[None]] = FairQueue()
        self._usual_latency = 0.0
        self._lowest = LowestLatency(clock)
        self._last_small = float("-inf")  # when a write of an object that is not big came
        self._makes_room = False  # the limit and the threshold are low for neighbours
        self._last_decrease = float("-inf")

    def slot(self, namespace: str = "", uid: str = "", batch: int = 1) -> WriteSlot:
        """Wait for a slot on behalf of the object with that namespace and uid, hold it for the block, and adjust the
        limit by the outcome and the latency of the block. `batch`: the number of writes that the object sends now, this
        one included. An Unavailable error counts as overload, any other exception leaves the limit as it is; all are
        re-raised."""
        return WriteSlot(self, namespace, uid, batch)

    async def acquire(self, namespace: str, uid: str, batch: int) -> float:
        """Wait for a slot. Returns the time from which the write is measured."""
        if batch <= BIG_BATCH:
            self._last_small = self._clock()
        if self._waiters or self.running >= int(self.limit):
            await self._wait_for_slot(namespace, uid)
        else:
            self.running += 1
        return self._clock()

    def release(self, started: float, batch: int, error: BaseException | None) -> None:
        """Free a slot; `error` is that of the write."""
        if error is None:
            self._succeeded(started, batch)
        elif isinstance(error, Unavailable):
            self._decrease(started)
        self._release()

    async def _wait_for_slot(self, namespace: str, uid: str) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiters.push(namespace, uid, granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # a slot is granted already: pass it on to the next waiter
                self._release()
            raise

    def _release(self) -> None:
        self.running -= 1
        self._grant()

    def _grant(self) -> None:
        """Give the free slots to waiters."""
        while self._waiters and self.running < int(self.limit):
            granted = self._waiters.pop(self._longest_line())
            if granted is None:
                return
            if not granted.done():  # done: the waiter was cancelled
                self.running += 1
                granted.set_result(None)

    @property
    def _has_neighbours(self) -> bool:
        """Whether an object that is not big has sent a write lately."""
        return self._clock() - self._last_small < NEIGHBOUR_SECONDS

    def _longest_line(self) -> int:
        """Up to how many waiting writes an object may get a slot now."""
        # At least one write is in flight before anybody is held back: its answer grants the next slots.
        return BIG_BATCH if self._has_neighbours and self.running >= max(1.0, self.limit * BIG_SHARE) else sys.maxsize

    def _succeeded(self, started: float, batch: int) -> None:
        latency = self._clock() - started
        lowest, usual = self._lowest.add(latency), self._usual_latency or latency
        has_neighbours = self._has_neighbours
        if self._makes_room and not has_neighbours:
            self.threshold, self._makes_room = INITIAL_THRESHOLD, False
        elif has_neighbours and batch > BIG_BATCH and not self._makes_room:
            self.limit = self.threshold = min(self.limit, ROOM_LIMIT)
            self._makes_room = True
        if latency > MIN_SLOW_LATENCY and latency > SLOW_FACTOR * usual:
            self._decrease(started)
        elif self._makes_room and batch > BIG_BATCH and latency > max(NEIGHBOUR_LATENCY, SLOW_FACTOR * lowest):
            self.limit = self.threshold = max(MIN_LIMIT, self.limit - 1.0 / self.limit)
        else:
            self.limit = min(MAX_LIMIT, self.limit + (1.0 if self.limit < self.threshold else 1.0 / self.limit))
        # The usual latency falls to a lower one at once and rises by 5 % per answer, so the limit recovers even when
        # the server stays slow.
        self._usual_latency = min(latency, usual * 1.05) if latency < usual else usual * 1.05

    def _decrease(self, started: float) -> None:
        if started > self._last_decrease:  # requests sent before the last decrease report the same overload
            self.limit = self.threshold = max(MIN_LIMIT, self.limit / 2)
            self._last_decrease = self._clock()


class WriteSlot:
    """A slot of a limiter, held in an `async with` block. No generator: that takes three times as long, for each
    write."""

    __slots__ = ("_batch", "_limiter", "_namespace", "_started", "_uid")

    def __init__(self, limiter: ConcurrencyLimiter, namespace: str, uid: str, batch: int) -> None:
        self._limiter, self._namespace, self._uid, self._batch = limiter, namespace, uid, batch
        self._started = 0.0

    async def __aenter__(self) -> None:
        self._started = await self._limiter.acquire(self._namespace, self._uid, self._batch)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limiter.release(self._started, self._batch, error)


class LowestLatency:
    """The lowest latency of the present window of LOWEST_SECONDS and of the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before = self._lowest = float("inf")
        self._window_end = clock() + LOWEST_SECONDS

    def add(self, latency: float) -> float:
        """Returns the lowest latency so far, this one included."""
        if (now := self._clock()) >= self._window_end:
            self._before, self._lowest, self._window_end = self._lowest, latency, now + LOWEST_SECONDS
        self._lowest = min(self._lowest, latency)
        return min(self._before, self._lowest)
