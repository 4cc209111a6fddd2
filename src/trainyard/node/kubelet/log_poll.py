"""Waits for new output in the logs that clients follow, and for their ends: one timer for all of them.

With a timer and a read for each followed log, `trainyard run` of 300 replicas that print nothing took a tenth of a
core; now it takes less than half of that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import NamedTuple

_POLL_SECONDS = 0.05


class _Follower(NamedTuple):
    """A client that has read `offset` bytes of the file `fd`. `done`: nothing more will be written."""

    fd: int
    offset: int
    done: Callable[[], bool]
    changed: asyncio.Future[None]


class LogPoll:
    """The timer runs only while somebody waits."""

    def __init__(self) -> None:
        self._followers: list[_Follower] = []
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, fd: int, offset: int, done: Callable[[], bool]) -> None:
        """Return when the file `fd` has more than `offset` bytes, or `done()` is true. Moves the position of
        `fd`, which the caller closes only after that."""
        loop = asyncio.get_running_loop()
        follower = _Follower(fd, offset, done, loop.create_future())
        self._followers.append(follower)
        if self._timer is None:
            self._timer = loop.call_later(_POLL_SECONDS, self._check)
        await follower.changed

    def _check(self) -> None:
        waiting = []
        for follower in self._followers:
            if follower.changed.done():  # cancelled: its file may be closed
                continue
            try:
                is_ready = os.lseek(follower.fd, 0, os.SEEK_END) > follower.offset or follower.done()
            except Exception as error:  # of one client: the others are served all the same
                follower.changed.set_exception(error)
                continue
            if is_ready:
                follower.changed.set_result(None)
            else:
                waiting.append(follower)
        self._followers = waiting
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_POLL_SECONDS, self._check) if waiting else None
