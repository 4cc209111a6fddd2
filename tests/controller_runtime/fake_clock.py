"""An event loop whose clock jumps to the next timer: what takes hours of pauses is tested in milliseconds."""

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
    """Nothing in it may wait for a thread, a process or another machine."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end with a clock of its own."""
    with asyncio.Runner(loop_factory=FakeClockLoop) as runner:
        return runner.run(work)
