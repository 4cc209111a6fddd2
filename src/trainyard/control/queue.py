"""Keys due for a look. A key waits once, its earliest time wins, and nobody holds it twice.

Rules for this file:
- Namespaces take turns, and so do the keys of a namespace: a thousand keys of one never hold up the one of another.
- A key added while somebody holds it waits until it is handed back.
- Times are of the clock that was handed in, which must not jump (a monotonic one). Nothing polls: `take` waits for an
  event, set by `add`, by `done` or by the one timer that stands for the earliest time.
- The queue does not know why a key is in it.
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


class Queue(Generic[K]):
    """`add` keys, `take` one, `done` with it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, namespace: Callable[[K], str] = _namespace) -> None:
        self._clock = clock
        self._namespace = namespace
        self._due: dict[K, float] = {}  # every waiting key, and when
        self._later: list[tuple[float, int, K]] = []  # a heap; an entry whose time is not the key's is void
        self._ready: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()  # whose turn it is next comes first
        self._held: set[K] = set()
        self._order = count()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    @property
    def ready(self) -> int:
        """How many are due and held by nobody, or will be as soon as they are handed back."""
        now = self._clock()
        return sum(at <= now for at in self._due.values())

    @property
    def held(self) -> int:
        return len(self._held)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Look at this key in `delay` seconds, or earlier if that was said before."""
        at = self._clock() + max(0.0, delay)
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        if key not in self._held:
            self._line_up(key, at)

    def pop(self) -> K | None:
        """The next key that is due, now held; None when there is none."""
        self._ripen()
        if not self._ready:
            return None
        namespace, keys = next(iter(self._ready.items()))
        key, _ = keys.popitem(last=False)
        if keys:
            self._ready.move_to_end(namespace)
        else:
            del self._ready[namespace]
        del self._due[key]
        self._held.add(key)
        return key

    async def take(self) -> K:
        """The next key, as soon as one is due. Whoever takes it says `done` with it."""
        while (key := self.pop()) is None:
            self._wake.clear()
            self._set_timer()
            await self._wake.wait()
        return key

    def done(self, key: K) -> None:
        """Nobody holds this key any more."""
        self._held.discard(key)
        if key in self._due:
            self._line_up(key, self._due[key])

    def next_time(self) -> float | None:
        """When the earliest key that nobody holds is due; None when nothing waits."""
        if self._ready:
            return self._clock()
        while self._later and not self._stands(*self._later[0]):
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _line_up(self, key: K, at: float) -> None:
        heapq.heappush(self._later, (at, next(self._order), key))
        self._wake.set()

    def _stands(self, at: float, order: int, key: K) -> bool:
        """False for what has been overtaken: an earlier time was said, or the key is ready or held already."""
        if self._due.get(key) != at or key in self._held:
            return False
        return key not in self._ready.get(self._namespace(key), ())

    def _ripen(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            if self._stands(*entry):
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
