"""An event loop whose clock jumps to the next timer, so that tests with hours of pauses take milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class FakeClockLoop(asyncio.SelectorEventLoop):
    """The clock jumps when no file descriptor is ready, so nothing may wait for a thread, a process or another
    machine."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine `work` to its end in a new `FakeClockLoop`, whose time begins at 0."""
    with asyncio.Runner(loop_factory=FakeClockLoop) as runner:
        return runner.run(work)
