"""A delaying work queue: a key is queued once, its earliest due time wins, and only one worker processes it at a time.

Rules for this file:
- Fair queueing: namespaces are served round-robin, the keys of a namespace first in, first out. A thousand keys of one
  namespace do not starve a key of another.
- A key added while a worker processes it is queued again at `done`, as in client-go's work queue.
- Due times are on the injected `clock`, which must be monotonic. Nothing polls: `take` waits for an event that is set
  by `add`, by `done`, or by one timer for the earliest due time.
- The queue does not record which event added a key.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def _namespace(key: object) -> str:
    return str(getattr(key, "namespace", ""))


class WorkQueue(Generic[K]):
    """`add` a key, `take` the next, call `done` after processing it (client-go: Add or AddAfter, Get, Done)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, namespace: Callable[[K], str] = _namespace) -> None:
        self._clock = clock
        self._namespace = namespace
        self._due: dict[K, float] = {}  # the due time of every queued key
        self._later: list[tuple[float, int, K]] = []  # a heap; an entry whose time differs from `_due` is stale
        self._ready: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()  # due keys; the first namespace is next
        self._processing: set[K] = set()
        self._order = count()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    @property
    def ready(self) -> int:
        """How many queued keys are due, including those added again while a worker processes them."""
        now = self._clock()
        return sum(at <= now for at in self._due.values())

    @property
    def processing(self) -> int:
        return len(self._processing)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Make the key due in `delay` seconds; an earlier due time that it already has is kept."""
        at = self._clock() + max(0.0, delay)
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        if key not in self._processing:
            self._push(key, at)

    def pop(self) -> K | None:
        """Return the next due key and mark it as being processed; None when no key is due."""
        self._promote_due()
        if not self._ready:
            return None
        namespace, keys = next(iter(self._ready.items()))
        key, _ = keys.popitem(last=False)
        if keys:
            self._ready.move_to_end(namespace)
        else:
            del self._ready[namespace]
        del self._due[key]
        self._processing.add(key)
        return key

    async def get(self) -> K:
        """Wait for the next due key. The caller must call `done` with it."""
        while (key := self.pop()) is None:
            self._wake.clear()
            self._set_timer()
            await self._wake.wait()
        return key

    def done(self, key: K) -> None:
        """The worker has processed this key; if it was added meanwhile, it is queued now."""
        self._processing.discard(key)
        if key in self._due:
            self._push(key, self._due[key])

    def next_time(self) -> float | None:
        """The earliest due time of the keys that no worker processes; None when there are none."""
        if self._ready:
            return self._clock()
        while self._later and not self._is_current(*self._later[0]):
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _push(self, key: K, at: float) -> None:
        heapq.heappush(self._later, (at, next(self._order), key))
        self._wake.set()

    def _is_current(self, at: float, order: int, key: K) -> bool:
        """False for a stale heap entry: the key has another due time, or is ready or being processed already."""
        if self._due.get(key) != at or key in self._processing:
            return False
        return key not in self._ready.get(self._namespace(key), ())

    def _promote_due(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            if self._is_current(*entry):
                key = entry[2]
                self._ready.setdefault(self._namespace(key), OrderedDict())[key] = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.next_time()
        if at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, at - self._clock()), self._wake.set)
