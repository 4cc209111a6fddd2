"""The screen on which the commands that only print logs print them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trainyard.cli.command.cluster_command import CommandError
from trainyard.cli.command.codes import READER_GONE, UNAVAILABLE
from trainyard.cli.output.screen import Descriptors, Screen, live_on, wants_colour

T = TypeVar("T")


async def with_screen(print_logs: Callable[[Screen], Coroutine[Any, Any, T]]) -> T:
    """Run `print_logs` with a Screen on stdout until its reader is gone. Raises CommandError when the output cannot be
    written any more."""
    reader_gone = asyncio.Event()
    colour, live = wants_colour(os.isatty(1), dict(os.environ)), live_on(2)
    screen = Screen(Descriptors(1, 1, 2), colour, live, reader_gone.set)
    work, waiter = asyncio.ensure_future(print_logs(screen)), asyncio.ensure_future(reader_gone.wait())
    try:
        await asyncio.wait({work, waiter}, return_when=asyncio.FIRST_COMPLETED)
        completed = work.done()
    finally:
        for task in (work, waiter):
            task.cancel()
        await asyncio.gather(work, waiter, return_exceptions=True)
        await screen.close()
    if not completed or reader_gone.is_set():
        raise CommandError("", READER_GONE if screen.output_error is None else UNAVAILABLE)
    return work.result()
