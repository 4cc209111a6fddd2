"""A delaying work queue. A key is queued at most once, at its earliest due time; one worker at a time processes it.

Rules for this file:
- Fair queueing: namespaces are served round-robin, the keys of one namespace first in, first out. A thousand keys of
  one namespace do not delay a key of another. Nor do keys whose processing does not end, as behind a webhook that
  hangs: the keys of one namespace that are processed at once are at most `share`, fewer than the workers.
- A key added while a worker processes it is queued again at `done`, as in client-go's work queue.
- Due times are on the injected `clock`, which must be monotonic. Nothing polls: a worker in `get` is woken by `add`, by
  `done`, or by one timer for the earliest due time; one worker for one key, as of 64 most have nothing to do.
- The queue does not record which event added a key.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def _namespace(key: object) -> str:
    return str(getattr(key, "namespace", ""))


class WorkQueue(Generic[K]):
    """`add` a key, `get` the next due key, call `done` after processing it (client-go: Add or AddAfter, Get, Done).
    `clock` returns monotonic seconds; `namespace` returns the namespace of a key, by default its attribute, else "".
    `share`: how many keys of one namespace are processed at once."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        namespace: Callable[[K], str] = _namespace,
        share: int = sys.maxsize,
    ) -> None:
        self._clock = clock
        self._namespace = namespace
        self._share = share
        self._shares: Counter[str] = Counter()  # the keys in `_processing` by namespace
        self._due: dict[K, float] = {}  # the due time of every queued key
        self._delayed: list[tuple[float, int, K]] = []  # a heap of (due time, sequence number, key); see `_is_current`
        self._ready: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()  # by namespace, the next one first
        self._processing: set[K] = set()
        self._sequence = count()  # orders heap entries of equal due time by insertion
        self._waiters: deque[asyncio.Future[None]] = deque()  # of the workers in `get`
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
        """Return the next due key and mark it as being processed; None when no key is due of a namespace that has not
        its share."""
        self._promote_due()
        namespace = next((name for name in self._ready if self._shares[name] < self._share), None)
        if namespace is None:
            return None
        keys = self._ready[namespace]
        key, _ = keys.popitem(last=False)
        if keys:
            self._ready.move_to_end(namespace)
        else:
            del self._ready[namespace]
        del self._due[key]
        self._processing.add(key)
        self._shares[namespace] += 1
        return key

    async def get(self) -> K:
        """Wait for the next due key and mark it as being processed. The caller must call `done` with it.

        Other tasks run first, even when a key is due: a worker may process thousands of keys without a request, and
        the renewal of the lease must not wait for all of them.
        """
        await asyncio.sleep(0)
        while (key := self.pop()) is None:
            self._set_timer()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():  # it was woken for a key: another worker takes that
                    self._wake()
                raise
        if self._waiters:  # this worker may not come back for long: another sees to the next key
            if self._ready:
                self._wake()
            else:
                self._set_timer()
        return key

    def done(self, key: K) -> None:
        """Mark the key as processed. If it was added meanwhile, it may be returned by `get` again."""
        if key in self._processing:
            self._processing.remove(key)
            namespace = self._namespace(key)
            self._shares[namespace] -= 1
            if not self._shares[namespace]:
                del self._shares[namespace]
        if key in self._due:
            self._push(key, self._due[key])
        elif self._ready:
            self._wake()  # the namespace had its share

    def _next_delayed(self) -> float | None:
        while self._delayed and not self._is_current(*self._delayed[0]):
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def _push(self, key: K, due_time: float) -> None:
        heapq.heappush(self._delayed, (due_time, next(self._sequence), key))
        self._wake()

    def _wake(self) -> None:
        """Wake one worker that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # done: it was cancelled
                waiter.set_result(None)
                return

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
        due_time = self._next_delayed()  # a key that is ready waits for `done` of another of its namespace
        if due_time is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due_time - self._clock()), self._wake)
