"""A shell in a terminal, and what its screen showed when."""

from __future__ import annotations

import math
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from functools import partial
from pathlib import Path

from tools.pictures.screen import COLUMNS, ROWS, Row, Screen

Frame = tuple[float, tuple[Row, ...]]  # the second from which on, and what the screen shows
PROMPT = "prompt"
SHELL = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
PROMPTS = {"PS1": "\x1b[32m$\x1b[0m ", "PROMPT_COMMAND": rf"printf '\033]{PROMPT}\a'"}
WORD, LINE, WAIT, END, SCENE = 0.2, 0.15, 1.2, 2.0, 2.0  # seconds between frames of the picture
QUIET = 0.03  # what is printed with shorter pauses is one frame: a read may return half of a screen
BEAT = 2.0  # a command begins at a multiple of so many seconds, such that few lines of the file differ the next time
LONG = 0.5  # a real wait of more seconds is WAIT in the picture, a shorter one LINE
UNFINISHED = re.compile(rb"\x1b(\[[?\d;]*|\][^\a]*)?$")
PATIENCE = 120.0  # seconds until a command that has not ended fails the recording


class Recording:
    """The frames of a session. Waits have fixed lengths, such that two recordings differ in what was printed only."""

    def __init__(self, terminal: int) -> None:
        self.frames: list[Frame] = []
        self._terminal, self._screen, self._seconds = terminal, Screen(), 0.0
        self._bytes = b""
        self._read_until(self._prompted)

    def command(self, text: str, key: str = "", draws: int = 0) -> None:
        """Type a command, which fits into a line, and wait for its end. `key` is pressed when the program has drawn the
        whole screen `draws` times."""
        words = text.split(" ")
        for at, word in enumerate(words):
            typed = word if at == len(words) - 1 else f"{word} "
            column = self._screen.column + len(typed)
            self._write(typed)
            self._read_until(partial(self._at_column, column))
            self._frame(WORD)
        self._screen.commands.clear()
        self._screen.draws = 0
        self._write("\n")
        if key:
            self._read_until(lambda: self._screen.draws >= draws, recorded=True)
            self._seconds += END
            self._write(key)
        self._read_until(self._prompted, recorded=True)
        self._seconds = math.ceil((self._seconds + END) / BEAT) * BEAT

    def clear(self) -> None:
        """Leave the screen as it is for a while; then nothing but the prompt."""
        self._seconds += SCENE
        last = self._screen.cells[self._screen.row]
        self._screen = Screen()
        self._screen.cells[0], self._screen.column = last, 2
        self._frame(0)

    def _at_column(self, column: int) -> bool:
        return self._screen.column == column

    def _prompted(self) -> bool:
        return PROMPT in self._screen.commands and self._screen.column == 2

    def _write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _frame(self, pause: float) -> None:
        rows = self._screen.rows()
        if not self.frames or rows != self.frames[-1][1]:
            self._seconds += pause
            self.frames.append((round(self._seconds, 2), rows))

    def _read_until(self, condition: Callable[[], bool], recorded: bool = False) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            before = time.monotonic()
            if not select.select([self._terminal], [], [], max(0, deadline - before))[0]:
                raise TimeoutError("the screen was:\n" + self.text())
            while select.select([self._terminal], [], [], QUIET)[0]:
                self._bytes += os.read(self._terminal, 65536)
            text, self._bytes = decoded(self._bytes)
            self._screen.feed(text)
            if recorded:
                self._frame(WAIT if time.monotonic() - before > LONG else LINE)

    def text(self) -> str:
        """What the screen shows now."""
        return "\n".join("".join(character for character, _ in row).rstrip() for row in self._screen.cells)


def decoded(received: bytes) -> tuple[str, bytes]:
    """The text, and the bytes at its end that are only the begin of a sequence or of a character."""
    end = UNFINISHED.search(received)
    whole = received[: end.start()] if end else received
    try:
        return whole.decode(), received[len(whole) :]
    except UnicodeDecodeError as error:
        return whole[: error.start].decode(), received[error.start :]


@contextmanager
def recording(environment: Mapping[str, str], folder: Path) -> Iterator[Recording]:
    """A shell in a terminal of 80 columns and 24 rows, in that folder; it is killed at the end."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(SHELL[0], SHELL, {**environment, **PROMPTS, "COLUMNS": str(COLUMNS), "LINES": str(ROWS)})  # noqa: S606
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        yield Recording(terminal)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
