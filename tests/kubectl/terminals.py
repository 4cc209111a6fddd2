"""What a person reads while a command runs: lines of a pipe, or a terminal that can be resized. All with a deadline."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.kubectl.kubectl_clusters import Person

PATIENCE, AGAIN = 60.0, 0.5


@contextmanager
def running(person: Person, *arguments: str, **ends: Any) -> Iterator[Running]:
    process = person.start(*arguments, **ends)
    assert process.stdout is not None
    try:
        yield Running(process, process.stdout.fileno())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def terminal(person: Person, *arguments: str, rows: int = 24, columns: int = 80) -> Iterator[Running]:
    """The same with a terminal of that size."""
    ours, theirs = pty.openpty()
    _size(theirs, rows, columns)
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = person.start(*arguments, start_new_session=True, **ends)
    os.close(theirs)
    try:
        yield Running(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Running:
    """A running command, and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process, self._fd, self.unread = process, fd, ""

    def read_until(self, pattern: str, meanwhile: Callable[[], None] | None = None) -> str:
        """Wait until that is said; what follows has not been seen yet. `meanwhile` is done now and then."""
        end = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self.unread)):
            if meanwhile is not None and not self._ready(AGAIN) and time.monotonic() < end:
                meanwhile()
                continue
            assert self._more(end), f"{pattern!r} is not said, only {self.unread!r}"
        self.unread = self.unread[match.end() :]
        return match[0]

    def rest(self) -> str:
        """All output until the end."""
        end = time.monotonic() + PATIENCE
        while self._more(end):
            pass
        return self.unread

    def _more(self, end: float) -> bool:
        if not self._ready(end - time.monotonic()):
            return False
        try:
            piece = os.read(self._fd, 1 << 16)
        except OSError:  # a terminal whose other end is closed
            return False
        self.unread += piece.decode(errors="replace")
        return bool(piece)

    def _ready(self, seconds: float) -> bool:
        return bool(select.select([self._fd], [], [], max(0.0, seconds))[0])

    def type(self, text: str) -> None:
        stdin = self.process.stdin
        os.write(stdin.fileno() if stdin else self._fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        _size(self._fd, rows, columns)
        self.changed()

    def changed(self) -> None:
        """Type into the terminal. Input before kubectl reads it is lost."""
        self.process.send_signal(signal.SIGWINCH)

    def code(self) -> int:
        return self.process.wait(PATIENCE)


def _size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
