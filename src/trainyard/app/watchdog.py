"""A watchdog: detects an event loop that is blocked, and a reconcile that makes no progress.

    watchdog.start(); ...; watchdog.unhealthy_reason(in_progress, progress); watchdog.longest_stall(); ...
    await watchdog.stop()

Rules for this file:
- A blocked event loop cannot log, and answers no probe, which makes /healthz fail. So a thread logs where the loop is
  blocked, once for each time.
- The longest stall of the last minute, and where it was, are in the metrics, `status` and `doctor`: a short one is no
  line in the log, but all clients of the process have waited for it.
- A reconcile without progress for HUNG_SECONDS, in which no request was answered or given up, is a bug: /healthz
  reports it. The API server can be slow or unreachable for any time, because each request is given up after a minute.
- A loop whose whole process was suspended was not blocked: it has used no CPU. What holds Python's lock has.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from trainyard.controller_runtime import TaskSupervisor

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.25  # seconds between two heartbeats of the loop
STALL_SECONDS = 0.5  # without a heartbeat that was due
RECENT_SECONDS = 60.0  # for which a stall is remembered
BLOCKED_SECONDS = 10.0  # without a heartbeat: the loop is blocked
HUNG_SECONDS = 180.0  # three times as long as any request may take
FRAMES = 12  # of the stack trace in the log
STALL_FRAMES = 3  # of a stall


class Stall(NamedTuple):
    """A time in which the event loop did one thing alone. `seconds`: its length, too short by less than
    HEARTBEAT_SECONDS; `where`: the innermost frames, innermost last; `since`: the last heartbeat, by the clock of the
    watchdog."""

    seconds: float
    where: str
    since: float


class Watchdog:
    """Watches the event loop that calls `start`. `blocked`: seconds without a heartbeat after which the loop counts as
    blocked; `hung`: seconds without progress; `clock` is monotonic; `on_stall` is called in another thread while the
    longest stall of the last minute lasts, again and again, with that stall."""

    def __init__(
        self,
        blocked: float = BLOCKED_SECONDS,
        hung: float = HUNG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        on_stall: Callable[[Stall], object] = lambda stall: None,
    ) -> None:
        self._blocked_seconds, self._hung_seconds, self._clock = blocked, hung, clock
        self._interval = min(HEARTBEAT_SECONDS, blocked / 4)
        self._last_heartbeat = clock()
        self._stalls: tuple[Stall, ...] = ()
        self._on_stall = on_stall
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

    def longest_stall(self) -> Stall | None:
        """The longest stall of the event loop that has lasted at any time of the last minute."""
        return max(self._recent_stalls(), default=None)

    def _recent_stalls(self) -> list[Stall]:
        oldest = self._clock() - RECENT_SECONDS
        return [stall for stall in self._stalls if stall.since + stall.seconds >= oldest]

    async def _heartbeat(self) -> None:
        while True:
            self._last_heartbeat = self._clock()
            await asyncio.sleep(self._interval)

    def _watch_loop(self, thread: int) -> None:
        """Runs in its own thread: logs each time the loop is blocked. `thread`: the ident of the thread of the loop."""
        reported, previous, previous_cpu = False, self._clock(), time.process_time()
        while not self._stopped.wait(self._interval):
            now, cpu, since = self._clock(), time.process_time(), self._last_heartbeat
            is_late, is_idle = now - previous > 2 * self._interval, cpu - previous_cpu < (now - previous) / 2
            paused, previous, previous_cpu = is_late and is_idle, now, cpu
            elapsed = now - since
            if elapsed - self._interval >= STALL_SECONDS and not paused:
                self._note_stall(Stall(elapsed - self._interval, _stack_of(thread, STALL_FRAMES), since))
            if elapsed < self._blocked_seconds or paused:
                reported = reported and elapsed >= self._blocked_seconds
            elif not reported:
                reported = True
                log.error("the event loop is blocked seconds=%.1f where=%s", elapsed, _stack_of(thread))

    def _note_stall(self, stall: Stall) -> None:
        """Remember a stall, or that it has become longer."""
        if "select (selectors.py:" in stall.where:  # the loop waits: it is behind because the machine is
            return
        others = (other for other in self._recent_stalls() if other.since != stall.since)
        self._stalls = (*others, stall)
        if self.longest_stall() == stall:
            self._on_stall(stall)


def _stack_of(thread: int, frames: int = FRAMES) -> str:
    """The innermost frames of that thread's stack, innermost last, in one line."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame)[-frames:] if frame is not None else []
    return " > ".join(f"{entry.name} ({entry.filename.rpartition('/')[2]}:{entry.lineno})" for entry in stack)
