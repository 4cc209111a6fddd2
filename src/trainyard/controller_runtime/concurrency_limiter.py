"""Limits the concurrent writes: the limit grows with each normal answer of the API server and is halved on overload.

Slow start, additive increase, multiplicative decrease, as in TCP: the limit begins low, because each further concurrent
write opens a connection, and TLS handshakes would delay the first writes; it doubles with each round of answers up to
`threshold`, then grows by one a round.

While others create a few objects, a job that creates many (BIG_BATCH) has one write in flight: all that is in flight
delays the requests of a small job, which are sent one after the other. It has up to ROOM_LIMIT when no small job has
written for NOW_SECONDS, so that the next one does not meet all of them, and no limit of its own after LATELY_SECONDS. A
status by itself holds nobody up: no replica waits for it.
Measured in turns with a seventh of a limit of 16: beside a job of 2,000, a hundred and eighty one-pod jobs waited 20 ms
for their Pod instead of 38 (median) and 49 instead of 94 (99th percentile), and the 2,000 Pods came as soon. With no
limit of their own the slowest waited 700 ms. A limit that also falls where answers are slow, for a job that is alone:
1,000 replicas with their Services took 4.4 s instead of 3.3.

A namespace without a write in flight may send one beyond the limit, so that writes that wait for a webhook which hangs
delay no other namespace; all together are at most twice as many as the limit.

Overload is an Unavailable error (429, 5xx, no answer), or an answer that took several times the usual latency. Answers
to requests sent before the last decrease cause no further decrease.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from trainyard.client import Unavailable
from trainyard.controller_runtime.fair_queue import FairQueue

INITIAL_LIMIT, MIN_LIMIT, MAX_LIMIT = 4.0, 2.0, 64.0  # the limit at first, at least, at most (concurrent writes)
INITIAL_THRESHOLD = 32.0  # concurrent writes
MIN_SLOW_LATENCY = 0.5  # an answer within this latency is never slow
SLOW_FACTOR = 4.0  # an answer is slow above this multiple of the usual latency
BIG_BATCH = 16  # writes of one object; above it the object leaves room for its neighbours
ROOM_LIMIT = 16  # concurrent writes of big objects after the last write of a small one, for LATELY_SECONDS
LATELY_SECONDS = 0.5
NOW_SECONDS = 0.05  # a single one for so long: the requests of a small job follow one another more quickly


class ConcurrencyLimiter:
    """A semaphore with a varying `limit`: each write is sent inside `async with limiter.slot(namespace, uid):`.
    `running` counts the slots in use; waiting callers get slots by the rules of FairQueue. The limit is `most` at most.
    `clock` returns monotonic seconds."""

    def __init__(self, most: float = MAX_LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = min(INITIAL_LIMIT, most)
        self._most = most
        self.threshold = INITIAL_THRESHOLD
        self.running = 0
        self._running_big = 0  # those of big objects
        self._running_by_namespace: Counter[str] = Counter()
        self._clock = clock
        self._waiters: FairQueue[_Waiter] = FairQueue()
        self._usual_latency = 0.0
        self._last_small = float("-inf")  # when a write of an object that is not big came
        self._last_decrease = float("-inf")

    def slot(self, namespace: str = "", uid: str = "", batch: int = 1) -> WriteSlot:
        """Wait for a slot on behalf of the object with that namespace and uid, hold it for the block, and adjust the
        limit by the outcome and the latency of the block. `batch`: the number of writes that the object sends now, this
        one included; 1 is a status by itself. An Unavailable error counts as overload, any other exception leaves the
        limit as it is; all are re-raised."""
        return WriteSlot(self, namespace, uid, batch)

    async def acquire(self, namespace: str, uid: str, batch: int) -> float:
        """Wait for a slot. Returns the time from which the write is measured."""
        is_big = batch > BIG_BATCH
        if 1 < batch <= BIG_BATCH:
            self._last_small = self._clock()
        if self._waiters or not self._is_free(namespace, is_big):
            await self._wait_for_slot(namespace, uid, is_big)
        else:
            self._take(namespace, is_big)
        return self._clock()

    def release(self, namespace: str, started: float | None, batch: int, error: BaseException | None) -> None:
        """Free a slot; `error` is that of the write. `started`: as `acquire` returned it; None if nothing was sent."""
        if started is not None and error is None:
            self._succeeded(started)
        elif started is not None and isinstance(error, Unavailable):
            self._decrease(started)
        self._release(namespace, batch > BIG_BATCH)

    async def _wait_for_slot(self, namespace: str, uid: str, is_big: bool) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiters.push(namespace, uid, _Waiter(granted, namespace, is_big))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # a slot is granted already: pass it on to the next waiter
                self._release(namespace, is_big)
            raise

    def _take(self, namespace: str, is_big: bool) -> None:
        self.running += 1
        self._running_big += is_big
        self._running_by_namespace[namespace] += 1

    def _release(self, namespace: str, is_big: bool) -> None:
        self.running -= 1
        self._running_big -= is_big
        self._running_by_namespace[namespace] -= 1
        if not self._running_by_namespace[namespace]:
            del self._running_by_namespace[namespace]
        self._grant()

    def _grant(self) -> None:
        """Give the free slots to waiters."""
        while waiter := self._waiters.pop(lambda waiter: self._is_free(waiter.namespace, waiter.is_big)):
            if not waiter.granted.done():  # done: the waiter was cancelled
                self._take(waiter.namespace, waiter.is_big)
                waiter.granted.set_result(None)

    def _is_free(self, namespace: str, is_big: bool) -> bool:
        """Whether a write of this namespace may be sent now."""
        limit = int(self.limit)
        limit *= 1 if self._running_by_namespace[namespace] else 2
        return self.running < limit and self._has_room(is_big)

    def _has_room(self, is_big: bool) -> bool:
        """Whether neighbours leave room for a write. One of a big object is always in flight: its answer grants the
        next slots."""
        if not is_big:
            return True
        since_small = self._clock() - self._last_small
        big_limit = 1 if since_small < NOW_SECONDS else ROOM_LIMIT if since_small < LATELY_SECONDS else sys.maxsize
        return self._running_big < big_limit

    def _succeeded(self, started: float) -> None:
        latency = self._clock() - started
        usual = self._usual_latency or latency
        if latency > MIN_SLOW_LATENCY and latency > SLOW_FACTOR * usual:
            self._decrease(started)
        else:
            self.limit = min(self._most, self.limit + (1.0 if self.limit < self.threshold else 1.0 / self.limit))
        # The usual latency falls to a lower one at once and rises by 5 % per answer, so the limit recovers even when
        # the server stays slow.
        self._usual_latency = min(latency, usual * 1.05) if latency < usual else usual * 1.05

    def _decrease(self, started: float) -> None:
        if started > self._last_decrease:  # requests sent before the last decrease report the same overload
            self.limit = self.threshold = max(MIN_LIMIT, self.limit / 2)
            self._last_decrease = self._clock()


class _Waiter(NamedTuple):
    granted: asyncio.Future[None]
    namespace: str
    is_big: bool


class WriteSlot:
    """A slot of a limiter, held in an `async with` block. No generator: that takes three times as long, for each
    write."""

    __slots__ = ("_batch", "_limiter", "_namespace", "_started", "_uid")

    def __init__(self, limiter: ConcurrencyLimiter, namespace: str, uid: str, batch: int) -> None:
        self._limiter, self._namespace, self._uid, self._batch = limiter, namespace, uid, batch
        self._started: float | None = None

    async def __aenter__(self) -> WriteSlot:
        self._started = await self._limiter.acquire(self._namespace, self._uid, self._batch)
        return self

    def skip(self) -> None:
        """Nothing is sent in this slot: it says nothing about the API server."""
        self._started = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limiter.release(self._namespace, self._started, self._batch, error)
