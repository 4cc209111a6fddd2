"""A screen that is drawn anew at an interval, until the user presses q.

The alternate screen of the terminal is used: what was there before is there again at the end. The lines go to the
terminal's descriptor itself, because the streams of a command pass no escape sequences; so they must be printable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator

_BEGIN, _END = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"  # alternate screen, without a cursor
_HOME, _CLEAR_LINE, _CLEAR_REST = b"\x1b[H", b"\x1b[K", b"\x1b[J"
QUIT_KEYS = (b"q", b"Q")


async def show_live(lines: Callable[[], Awaitable[list[str]]], interval: float) -> None:
    """Draw what `lines` returns, every `interval` seconds. Returns after q. The terminal is restored also when `lines`
    raises."""
    first = await lines()  # an error before the first screen is printed as any other
    with _screen(), _quit_key() as quitting:
        _draw(first)
        while not await _is_set_within(quitting, interval):
            _draw(await lines())


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _draw(lines: list[str]) -> None:
    body = b"\r\n".join(line.encode("utf-8", "replace") + _CLEAR_LINE for line in lines)
    _write(_HOME + body + _CLEAR_REST)


def _write(output: bytes) -> None:
    while output:
        output = output[os.write(1, output) :]


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.flush()
    _write(_BEGIN)
    try:
        yield
    finally:
        _write(_END)


@contextlib.contextmanager
def _quit_key() -> Iterator[asyncio.Event]:
    """An event that is set when q is pressed, and by SIGTERM and SIGHUP. Keys are not echoed; Ctrl-C still
    interrupts."""
    pressed, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, pressed.set)
    if not os.isatty(0):
        yield pressed
        return

    def read_key() -> None:
        key = os.read(0, 1)
        if key in QUIT_KEYS:
            pressed.set()
        elif not key:
            loop.remove_reader(0)

    before = termios.tcgetattr(0)
    tty.setcbreak(0, termios.TCSANOW)
    loop.add_reader(0, read_key)
    try:
        yield pressed
    finally:
        loop.remove_reader(0)
        termios.tcsetattr(0, termios.TCSANOW, before)
