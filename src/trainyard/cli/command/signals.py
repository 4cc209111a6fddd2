"""The first SIGINT, SIGTERM or SIGHUP requests a graceful end, the second an immediate one. A closed reader of the
output (EPIPE) counts as a first signal. SIGUSR1 dumps all stacks to stderr."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Coroutine
from typing import Any

from trainyard.app.stack_dump import dump_stacks_on_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Signal handlers that set the events `first` and `second`. Create it in the event loop; `close` removes the
    handlers."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.reader_gone = False
        self._loop = asyncio.get_running_loop()
        for signum in SIGNALS:
            self._loop.add_signal_handler(signum, self.handle_signal)
        dump_stacks_on_signal()

    def handle_signal(self) -> None:
        """A signal has come: set `first`, then `second`."""
        (self.second if self.first.is_set() else self.first).set()

    def lose_reader(self) -> None:
        """Nothing reads the output any more: stop as after a first signal."""
        self.reader_gone = True
        self.first.set()

    def close(self) -> None:
        """Restore the default handling of the signals."""
        for signum in SIGNALS:
            self._loop.remove_signal_handler(signum)

    async def run_unless(self, event: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
        """Run `work` until it is done (True) or until `event` is set, then cancel it (False). Raises the exceptions
        of `work`."""
        task = asyncio.ensure_future(work)
        waiter = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            for future in (task, waiter):
                future.cancel()
                await _wait_quietly(future)


async def _wait_quietly(task: Awaitable[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
