"""A test fails in which the event loop of a cluster did one thing alone for more than LIMIT seconds of CPU.

The product's watchdog measures seconds of the clock, as a client does. Here it is the CPU time of the loop's thread in
one iteration of the loop: a busy machine does not make it longer. Measured is every loop of this process in which a
Watchdog runs, while it runs.

- Collections of garbage are left out: the heap is that of thousands of tests.
- Parts of an iteration in which no function of the product was on the stack are the test's own work.
- A place that is known to take longer is a row of ALLOWED, with the reason and the day on which the row ends.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import collections
import datetime
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

LIMIT = 0.25  # seconds of CPU; in the tests of the first day the longest iteration took 0.04
SAMPLE_SECONDS = 0.02  # between two looks at the stack of the loop's thread
FIRST_SAMPLE = 0.05  # seconds of CPU of an iteration before the first look
PRODUCT = str(Path(__file__).parents[2] / "src" / "trainyard") + "/"


class AllowedStall(NamedTuple):
    """`place`: a function that may take longer, as a stall names it; `until`: the day from which it may not."""

    place: str
    reason: str
    until: datetime.date


ALLOWED: tuple[AllowedStall, ...] = ()


class LoopStall(NamedTuple):
    """`seconds` of CPU; `place`: the product's innermost function that was seen most often, with its file."""

    seconds: float
    place: str


class _WatchedLoop:
    """A loop that is measured, made in the thread that runs it."""

    def __init__(self, on_stall: Callable[[LoopStall], object]) -> None:
        self.thread = threading.get_ident()
        self.stopped = threading.Event()
        self.collections = 0.0  # seconds of CPU of collections of garbage within the iteration
        self._clock = time.pthread_getcpuclockid(self.thread)
        self._begin = time.thread_time()  # of the iteration, in CPU time of the thread
        self._places: list[str] = []  # the product's innermost functions, "" for none
        self._on_stall = on_stall

    def start_iteration(self) -> None:
        self.collections, self._places = 0.0, []
        self._begin = time.thread_time()

    def end_iteration(self) -> None:
        seconds = time.thread_time() - self._begin - self.collections
        self._begin = float("inf")
        places = collections.Counter(filter(None, self._places))
        if seconds > LIMIT and places:
            [(place, _)] = places.most_common(1)
            self._on_stall(LoopStall(seconds * places.total() / len(self._places), place))

    def sample(self) -> None:
        """Look at the stack again and again, in a thread of its own."""
        while not self.stopped.wait(SAMPLE_SECONDS):
            places = self._places
            try:
                seconds = time.clock_gettime(self._clock) - self._begin
            except OSError:  # the thread has ended, and its loop has not been stopped
                return
            if seconds >= FIRST_SAMPLE:
                places.append(_innermost_place(sys._current_frames().get(self.thread)))


def _innermost_place(frame: FrameType | None) -> str:
    while frame is not None:
        if (path := frame.f_code.co_filename).startswith(PRODUCT):
            return f"{path.removeprefix(PRODUCT)}:{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


class LoopStalls:
    """The plugin of pytest. `stalls`: those since the last teardown of a test."""

    def __init__(self) -> None:
        self.stalls: list[LoopStall] = []
        self._watched: dict[asyncio.AbstractEventLoop, _WatchedLoop] = {}
        self._collection_begin = 0.0

    def pytest_collection_finish(self) -> None:
        """Measure from now on. Not before: what no test needs is not imported."""
        if "trainyard.app.watchdog" in sys.modules:
            self._install()

    def _install(self) -> None:
        from trainyard.app.watchdog import Watchdog

        loop_class: Any = asyncio.base_events.BaseEventLoop
        watchdog_class: Any = Watchdog
        start, stop, run_once = Watchdog.start, Watchdog.stop, loop_class._run_once

        @functools.wraps(start)
        def start_and_watch(watchdog: Watchdog) -> None:
            start(watchdog)
            self.watch(asyncio.get_running_loop())

        @functools.wraps(stop)
        async def unwatch_and_stop(watchdog: Watchdog) -> None:
            self.unwatch(asyncio.get_running_loop())
            await stop(watchdog)

        @functools.wraps(run_once)
        def run_once_and_measure(loop: asyncio.AbstractEventLoop) -> None:
            if (watched := self._watched.get(loop)) is None:
                run_once(loop)
                return
            watched.start_iteration()
            try:
                run_once(loop)
            finally:
                watched.end_iteration()

        watchdog_class.start, watchdog_class.stop = start_and_watch, unwatch_and_stop
        loop_class._run_once = run_once_and_measure
        gc.callbacks.append(self._leave_out_collection)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the running loop."""
        if loop not in self._watched:
            watched = self._watched[loop] = _WatchedLoop(self.stalls.append)
            threading.Thread(target=watched.sample, name="samples of a loop", daemon=True).start()

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure it no more."""
        if watched := self._watched.pop(loop, None):
            watched.stopped.set()

    def _leave_out_collection(self, phase: str, info: dict[str, Any]) -> None:
        thread = threading.get_ident()
        for watched in list(self._watched.values()):
            if watched.thread != thread:
                continue
            if phase == "start":
                self._collection_begin = time.thread_time()
            else:
                watched.collections += time.thread_time() - self._collection_begin

    def forbidden_stalls(self, today: datetime.date) -> list[str]:
        """A sentence for each stall since the last call that no row allows."""
        stalls, self.stalls[:] = list(self.stalls), []
        allowed = {row.place for row in ALLOWED if today < row.until}
        return [
            f"the event loop did nothing else for {stall.seconds * 1000:.0f} ms of CPU, mostly {stall.place}"
            for stall in stalls
            if stall.seconds > LIMIT and stall.place not in allowed
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Fail the test in whose time a loop stalled."""
        yield
        if self.stalls and (sentences := self.forbidden_stalls(datetime.date.today())):
            pytest.fail("; ".join(sentences), pytrace=False)
