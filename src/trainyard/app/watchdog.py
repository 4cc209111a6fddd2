"""A watchdog: detects an event loop that is blocked, and a reconcile that makes no progress.

    watchdog.start(); ...; watchdog.unhealthy_reason(in_progress, progress); ...; await watchdog.stop()

Rules for this file:
- A blocked event loop cannot log, and answers no probe, which makes /healthz fail. So a thread logs where the loop is
  blocked, once for each time.
- A reconcile without progress for HUNG_SECONDS, in which no request was answered or given up, is a bug: /healthz
  reports it. The API server can be slow or unreachable for any time, because each request is given up after a minute.
- A loop whose whole process was suspended was not blocked.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

from trainyard.controller_runtime import TaskSupervisor

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0  # seconds between two heartbeats of the loop
BLOCKED_SECONDS = 10.0  # without a heartbeat: the loop is blocked
HUNG_SECONDS = 180.0  # three times as long as any request may take
FRAMES = 12  # of the stack trace in the log


class Watchdog:
    """Watches the event loop that calls `start`. `blocked`: seconds without a heartbeat after which the loop counts as
    blocked; `hung`: seconds without progress; `clock` is monotonic."""

    def __init__(
        self, blocked: float = BLOCKED_SECONDS, hung: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._blocked_seconds, self._hung_seconds, self._clock = blocked, hung, clock
        self._interval = min(HEARTBEAT_SECONDS, blocked / 4)
        self._last_heartbeat = clock()
        self._progress: object = None
        self._progress_time = clock()
        self.tasks = TaskSupervisor("watchdog")
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start to watch. To be called in the event loop that is watched."""
        self._last_heartbeat = self._clock()
        self.tasks.start("heartbeat", self._heartbeat)
        threading.Thread(target=self._watch_loop, args=(threading.get_ident(),), name="watchdog", daemon=True).start()

    async def stop(self) -> None:
        """End the thread and the task."""
        self._stopped.set()
        await self.tasks.stop()

    def unhealthy_reason(self, in_progress: int, progress: object) -> str:
        """Why the process must be restarted; "" when it is healthy. `in_progress`: the number of
        jobs being reconciled; `progress`: any value that changes with progress."""
        now = self._clock()
        if not in_progress or progress != self._progress:
            self._progress, self._progress_time = progress, now
        elapsed = now - self._progress_time
        return f"a reconcile has made no progress for {elapsed:.0f} s" if elapsed >= self._hung_seconds else ""

    async def _heartbeat(self) -> None:
        while True:
            self._last_heartbeat = self._clock()
            await asyncio.sleep(self._interval)

    def _watch_loop(self, thread: int) -> None:
        """Runs in its own thread: logs each time the loop is blocked. `thread`: the ident of the thread of the loop."""
        reported, previous = False, self._clock()
        while not self._stopped.wait(self._interval):
            now = self._clock()
            paused, previous = now - previous > self._blocked_seconds / 2, now
            elapsed = now - self._last_heartbeat
            if elapsed < self._blocked_seconds or paused:
                reported = reported and elapsed >= self._blocked_seconds
            elif not reported:
                reported = True
                log.error("the event loop is blocked seconds=%.1f where=%s", elapsed, _stack_of(thread))


def _stack_of(thread: int) -> str:
    """The innermost frames of that thread's stack, innermost last, in one line."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame)[-FRAMES:] if frame is not None else []
    return " > ".join(f"{entry.name} ({entry.filename.rpartition('/')[2]}:{entry.lineno})" for entry in stack)
