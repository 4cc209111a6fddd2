"""A delaying work queue. A key is queued at most once, at its earliest due time; one worker at a time processes it.

Rules for this file:
- Fair queueing: namespaces are served round-robin, the keys of one namespace first in, first out. A thousand keys of
  one namespace do not delay a key of another.
- A key added while a worker processes it is queued again at `done`, as in client-go's work queue.
- Due times are on the injected `clock`, which must be monotonic. Nothing polls: `get` waits for an event that is set
  by `add`, by `done`, or by one timer for the earliest due time.
- The queue does not record which event added a key.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def _namespace(key: object) -> str:
    return str(getattr(key, "namespace", ""))


class WorkQueue(Generic[K]):
    """`add` a key, `get` the next due key, call `done` after processing it (client-go: Add or AddAfter, Get, Done).
    `clock` returns monotonic seconds; `namespace` returns the namespace of a key, by default its attribute, else ""."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, namespace: Callable[[K], str] = _namespace) -> None:
        self._clock = clock
        self._namespace = namespace
        self._due: dict[K, float] = {}  # the due time of every queued key
        self._delayed: list[tuple[float, int, K]] = []  # a heap of (due time, sequence number, key); see `_is_current`
        self._ready: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()  # by namespace, the next one first
        self._processing: set[K] = set()
        self._sequence = count()  # orders heap entries of equal due time by insertion
        self._wake = asyncio.Event()  # `get` checks for a due key when it is set
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of queued keys, due or not."""
        return len(self._due)

    def states(self) -> Iterator[tuple[K, str]]:
        """The state of each key: "due", also if it was added again while a worker processes it; "later", with a due
        time in the future; "held" by a worker. A key may be both held and due or later."""
        now = self._clock()
        for key, due_time in self._due.items():
            yield key, "due" if due_time <= now else "later"
        for key in self._processing:
            yield key, "held"

    @property
    def processing_count(self) -> int:
        """The number of keys that workers process."""
        return len(self._processing)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Queue the key, due in `delay` seconds. If it is queued already, the earlier due time is kept."""
        due_time = self._clock() + max(0.0, delay)
        if key in self._due and self._due[key] <= due_time:
            return
        self._due[key] = due_time
        if key not in self._processing:
            self._push(key, due_time)

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
        """Wait for the next due key and mark it as being processed. The caller must call `done` with it.

        Other tasks run first, even when a key is due: a worker may process thousands of keys without a request, and
        the renewal of the lease must not wait for all of them.
        """
        await asyncio.sleep(0)
        while (key := self.pop()) is None:
            self._wake.clear()
            self._set_timer()
            await self._wake.wait()
        return key

    def done(self, key: K) -> None:
        """Mark the key as processed. If it was added meanwhile, it may be returned by `get` again."""
        self._processing.discard(key)
        if key in self._due:
            self._push(key, self._due[key])

    def next_due_time(self) -> float | None:
        """The earliest due time of the queued keys that no worker processes; None when there is none."""
        if self._ready:
            return self._clock()
        while self._delayed and not self._is_current(*self._delayed[0]):
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def _push(self, key: K, due_time: float) -> None:
        heapq.heappush(self._delayed, (due_time, next(self._sequence), key))
        self._wake.set()

    def _is_current(self, due_time: float, sequence: int, key: K) -> bool:
        """False for a stale heap entry: the key has another due time, or is in `_ready` or being processed already."""
        if self._due.get(key) != due_time or key in self._processing:
            return False
        return key not in self._ready.get(self._namespace(key), ())

    def _promote_due(self) -> None:
        """Move the due keys from the heap to `_ready`."""
        now = self._clock()
        while self._delayed and self._delayed[0][0] <= now:
            entry = heapq.heappop(self._delayed)
            if self._is_current(*entry):
                key = entry[2]
                self._ready.setdefault(self._namespace(key), OrderedDict())[key] = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_time = self.next_due_time()
        if due_time is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due_time - self._clock()), self._wake.set)
