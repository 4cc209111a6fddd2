"""Operators that die at a write. What one tried is tried by the next, until one has nothing new to say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from tests.stories.harness import Harness, Noted, looked
from trainyard.client import ApiRequest
from trainyard.objects import decode, encode

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class CrashPoint:
    """Of one operator: it dies at its first write that is news, before the API server has it or before the answer."""

    def __init__(self, writes: set[str], applied: bool) -> None:
        self.died = asyncio.Event()
        self._seen, self._applied = writes, applied

    def take(self, api: Noted) -> None:
        api.before, api.after = (self._dead, self._die) if self._applied else (self._die, self._dead)

    def _die(self, request: ApiRequest) -> None:
        self._dead(request)
        write = _news(request)
        if request.method != "GET" and write not in self._seen:
            self._seen.add(write)
            self.died.set()
            raise asyncio.CancelledError

    def _dead(self, request: ApiRequest) -> None:
        if self.died.is_set():
            raise asyncio.CancelledError


def _news(request: ApiRequest) -> str:
    """The content of a write, without its revision and timestamps."""
    body = decode(request.body or b"{}")
    meta = body.pop("metadata", {})
    return f"{request.method} {request.path} {meta.get('name') or TIME.sub('', encode(body).decode())}"


async def survives(harness: Harness, crash_point: CrashPoint, done: Callable[[], Awaitable[object]]) -> bool:
    """True when an operator with this crash_point has brought the job so far and has nothing more to say about it."""
    operator, _ = await harness.operator(crash_point.take)

    async def settled() -> None:
        await done()
        await looked(operator)

    lived, died = asyncio.create_task(settled()), asyncio.create_task(crash_point.died.wait())
    await asyncio.wait((lived, died), return_when=asyncio.FIRST_COMPLETED)
    survived = lived.done() and not crash_point.died.is_set()
    for task in (lived, died):
        task.cancel()
    ends = await asyncio.gather(lived, died, return_exceptions=True)
    if survived and isinstance(ends[0], Exception):
        raise ends[0]
    return survived


async def deaths(harness: Harness, applied: bool, done: Callable[[], Awaitable[object]]) -> int:
    """How many operators die, each at its first write that no other has died at, until the job has come so far."""
    writes: set[str] = set()
    count = 0
    while not await survives(harness, CrashPoint(writes, applied), done):
        count += 1
    return count
