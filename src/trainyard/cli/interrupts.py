"""Ctrl-C once: end in good order. Twice: at once. SIGTERM and SIGHUP mean the same; so does a reader who went away."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Coroutine
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """`once` and `twice` are events. Made inside the event loop; `close` gives the signals back."""

    def __init__(self) -> None:
        self.once = asyncio.Event()
        self.twice = asyncio.Event()
        self.reader_gone = False
        self._loop = asyncio.get_running_loop()
        for one in SIGNALS:
            self._loop.add_signal_handler(one, self.hit)

    def hit(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()

    def lose_reader(self) -> None:
        self.reader_gone = True
        self.once.set()

    def close(self) -> None:
        for one in SIGNALS:
            self._loop.remove_signal_handler(one)

    async def unless(self, event: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
        """Do the work to its end: True. Give it up when the event comes: False. The work's exceptions are raised."""
        task = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            for one in (task, waiting):
                one.cancel()
                await _ended(one)


async def _ended(task: Awaitable[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
