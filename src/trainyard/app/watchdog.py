"""A watchdog: whether the operator's loop turns, and whether its passes get on.

    watchdog.start(); ...; watchdog.hangs(held, done); ...; await watchdog.stop()

Rules for this file:
- A loop that stands still cannot say so, and answers no probe: that alone makes /healthz fail. A thread beside it says
  in the log where it stands, once for each time.
- A pass that has got no further for long, with no request of it answered or given up, is a bug: /healthz says so. The
  API server may be slow or away as long as it likes, because each request is given up after a minute.
- A process that was paused as a whole has not stood still.
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

BEAT = 1.0
STILL_SECONDS = 10.0
HUNG_SECONDS = 180.0  # three times as long as any request may take
FRAMES = 12  # of the stack


class Watchdog:
    """Of one loop. `clock` is a monotonic one."""

    def __init__(
        self, still: float = STILL_SECONDS, hung: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._still, self._hung, self._clock = still, hung, clock
        self._beat = min(BEAT, still / 4)
        self._turned = clock()
        self._done: object = None
        self._since = clock()
        self.tasks = TaskSupervisor("watchdog")
        self._ended = threading.Event()

    def start(self) -> None:
        """In the loop that is watched."""
        self._turned = self._clock()
        self.tasks.start("turn", self._turn)
        threading.Thread(target=self._look, args=(threading.get_ident(),), name="watchdog", daemon=True).start()

    async def stop(self) -> None:
        self._ended.set()
        await self.tasks.stop()

    def hangs(self, held: int, done: object) -> str:
        """Why a new start is needed, "" when it is not. `held` jobs are looked at; `done` changes with each step."""
        now = self._clock()
        if not held or done != self._done:
            self._done, self._since = done, now
        late = now - self._since
        return f"a pass over a job has got no further for {late:.0f} s" if late >= self._hung else ""

    async def _turn(self) -> None:
        while True:
            self._turned = self._clock()
            await asyncio.sleep(self._beat)

    def _look(self, thread: int) -> None:
        """In a thread of its own."""
        said, before = False, self._clock()
        while not self._ended.wait(self._beat):
            now = self._clock()
            paused, before = now - before > self._still / 2, now
            late = now - self._turned
            if late < self._still or paused:
                said = said and late >= self._still
            elif not said:
                said = True
                log.error("the loop has stood still seconds=%.1f where=%s", late, _where(thread))


def _where(thread: int) -> str:
    """The end of that thread's stack, innermost last, in one line."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame)[-FRAMES:] if frame is not None else []
    return " > ".join(f"{one.name} ({one.filename.rpartition('/')[2]}:{one.lineno})" for one in stack)
