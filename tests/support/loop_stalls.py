"""A test fails in which the event loop of a cluster did one thing alone for more than LIMIT seconds of CPU.

The product's watchdog measures seconds of the clock, as a client does. Here it is the CPU time of the loop's thread in
one iteration of the loop: a busy machine does not make it longer. Measured is every loop in which a Watchdog runs,
while it runs: of this process, and of each daemon of `trainyard up` whose environment is that of
`environment_of_watched_daemons`. Not a loop of uvloop, which iterates in C: only `trainyard operator` has one.

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
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

LIMIT = 0.25  # seconds of CPU; in the tests of the first day the longest iteration took 0.04
SAMPLE_SECONDS = 0.02  # between two looks at the stack of the loop's thread
FIRST_SAMPLE = 0.05  # seconds of CPU of an iteration before the first look
FOLDER = "TRAINYARD_TEST_LOOP_STALLS"  # the variable that names the folder into which daemons write their stalls
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
            self.install()

    def install(self) -> None:
        """Measure the loop of each Watchdog from its start to its stop."""
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
        """A sentence for each stall since the last call that no row allows: of this process and of its daemons."""
        stalls, self.stalls[:] = [*self.stalls, *_stalls_of_daemons()], []
        allowed = {row.place for row in ALLOWED if today < row.until}
        return [
            f"the event loop did nothing else for {stall.seconds * 1000:.0f} ms of CPU, mostly {stall.place}"
            for stall in stalls
            if stall.seconds > LIMIT and stall.place not in allowed
        ]


def environment_of_watched_daemons(environment: Mapping[str, str]) -> dict[str, str]:
    """This environment, in which the loop of each daemon of `trainyard up` is measured."""
    start = str(Path(__file__).parent / "watched_daemons")
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (start, environment.get("PYTHONPATH"))))}


def watch_daemon(folder: Path) -> None:
    """Measure the loop of this process, which is a daemon, and write its stalls into the folder."""
    loop_stalls = LoopStalls()
    loop_stalls.stalls = _WrittenStalls(_file_of(folder, os.getpid()))
    loop_stalls.install()


def is_watched_daemon(pid: int) -> bool:
    """Whether the loop of this daemon of the test is measured."""
    return _file_of(Path(os.environ[FOLDER]), pid).exists()


def _file_of(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.json"


class _WrittenStalls(list[LoopStall]):
    """Stalls of which each is written when it is appended: a daemon may be killed at any time."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        file.touch()  # tells that this daemon is measured

    def append(self, stall: LoopStall) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(stall) + "\n")


def _stalls_of_daemons() -> list[LoopStall]:
    """What daemons have written since the last call."""
    stalls = []
    for file in sorted(Path(os.environ[FOLDER]).glob("*.json")):
        taken = file.rename(file.with_suffix(".taken"))
        stalls += [LoopStall(*json.loads(line)) for line in taken.read_text().splitlines()]
    return stalls
