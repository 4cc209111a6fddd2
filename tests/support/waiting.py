"""Waiting for a condition: `until` in synchronous code, `until_async` in coroutines.

Rules for this file:
- Tests wait by these two functions and poll with no deadline of their own. What awaits objects of an API server uses
  `tests/support/watched_objects.py`, which is built on them and does not poll.
- A condition that does not come true in time fails with one text: what was awaited, how long, and the last value or
  error.
- The default time limit is generous, for machines that are busy: it bounds a failure, and no test passes by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

PATIENCE = 60.0
PAUSE = 0.02  # between two looks at this process and its files
SLOW_PAUSE = 0.1  # where each look starts a process, or asks a server that needs its CPU for something else
MAX_CHARACTERS = 3000  # of the last value


class NotInTime(AssertionError):
    """The condition did not come true within the time limit. An assertion of a look is another AssertionError."""


def until(
    look: Callable[[], T | None],
    awaited: str,
    *,
    accept: Callable[[T], object] = bool,
    retry_on: Errors = (),
    context: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
    pause: float = PAUSE,
) -> T:
    """Call `look` until it returns a value of which `accept` is true, by default until it is true; return that value.

    `awaited` says in words what comes true. None is never accepted, an error of `retry_on` means "not yet", and any
    other error is raised at once. There are `pause` seconds between two looks. After `seconds` NotInTime is
    raised; its text ends with what `context` returns.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = look()
        except retry_on as error:
            last = f"last error: {error!r}"
        else:
            if value is not None and accept(value):
                return value
            last = f"last value: {value!r}"
        if time.monotonic() > deadline:
            raise _failure(awaited, seconds, last, "" if context is None else _context(context))
        time.sleep(pause)


@overload
async def until_async(
    look: Callable[[], Awaitable[T | None]],
    awaited: str,
    *,
    accept: Callable[[T], object] = ...,
    retry_on: Errors = ...,
    context: Callable[[], object] | None = ...,
    seconds: float = ...,
    pause: float = ...,
) -> T: ...
@overload
async def until_async(
    look: Callable[[], T | None],
    awaited: str,
    *,
    accept: Callable[[T], object] = ...,
    retry_on: Errors = ...,
    context: Callable[[], object] | None = ...,
    seconds: float = ...,
    pause: float = ...,
) -> T: ...
async def until_async(
    look: Callable[[], Any],
    awaited: str,
    *,
    accept: Callable[[Any], object] = bool,
    retry_on: Errors = (),
    context: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
    pause: float = PAUSE,
) -> Any:
    """`until` for coroutines. `look` and `context` may be coroutine functions. A look that hangs is cancelled."""
    last = "the first look has not ended"
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                try:
                    value = await _result(look)
                except retry_on as error:
                    last = f"last error: {error!r}"
                else:
                    if value is not None and accept(value):
                        return value
                    last = f"last value: {value!r}"
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise  # an error of `look` itself
    raise _failure(awaited, seconds, last, "" if context is None else await _context_async(context))


async def _result(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isinstance(result, Awaitable) else result


def _context(context: Callable[[], object]) -> object:
    """An error here must not hide the failure."""
    try:
        return context()
    except Exception as error:
        return f"no context: {error!r}"


async def _context_async(context: Callable[[], object]) -> object:
    try:
        return await _result(context)
    except Exception as error:
        return f"no context: {error!r}"


def _failure(awaited: str, seconds: float, last: str, context: object) -> NotInTime:
    if len(last) > MAX_CHARACTERS:
        last = f"{last[: MAX_CHARACTERS // 3]} ... {last[-2 * MAX_CHARACTERS // 3 :]}"
    return NotInTime(f"not within {seconds:g} s: {awaited}; {last}" + (f"\n{context}" if context else ""))
