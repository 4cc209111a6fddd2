"""Stack dumps: SIGUSR1 writes the stacks of all threads and asyncio tasks to stderr, and the process goes on.

Rules for this file:
- The threads are written by faulthandler in the signal handler itself, also while the interpreter is in C code or waits
  for a lock. The tasks follow as soon as the main thread executes bytecode, even if its event loop is blocked.
- File names, lines and functions only: no values, so a dump contains no secret and no text of a pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

STDERR = 2  # the descriptor: sys.stderr may be replaced or closed


def dump_stacks_on_signal() -> None:
    """Install the handler. To be called in the main thread, in the event loop whose tasks are to be written."""
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGUSR1, lambda number, frame: _write_tasks(loop))
    faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True, chain=True)  # chain: to the handler above


def _write_tasks(loop: asyncio.AbstractEventLoop) -> None:
    text = "".join(f"\n{part}" for part in (*map(_task_text, sorted(asyncio.all_tasks(loop), key=_name)), ""))
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(STDERR, text.encode(errors="backslashreplace"))


def _name(task: asyncio.Task[Any]) -> str:
    return task.get_name()


def _task_text(task: asyncio.Task[Any]) -> str:
    """The name of a task and its stack, most recent call first, as faulthandler writes that of a thread."""
    frames = reversed(list(_frames(task.get_coro())))
    lines = (f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}\n' for frame, line in frames)
    return f"Task {task.get_name()!r} (most recent call first):\n{''.join(lines)}"


def _frames(awaitable: Any) -> Iterator[tuple[FrameType, int]]:
    """The frames of a coroutine and of those that it awaits, outermost first, with their lines."""
    while awaitable is not None:
        for prefix, awaited in (("cr", "cr_await"), ("ag", "ag_await"), ("gi", "gi_yieldfrom")):
            if (frame := getattr(awaitable, f"{prefix}_frame", None)) is not None:
                yield frame, frame.f_lineno
                awaitable = getattr(awaitable, awaited)
                break
        else:
            return  # a future, or a coroutine that has ended


__all__ = ["dump_stacks_on_signal"]
