"""The output of a replica, split into lines that have ended and one that is open."""

from __future__ import annotations

import re

_CURSOR_UP = re.compile(rb"\x1b\[(\d{0,3})A")
_MAX_ROWS = 32  # of a block of progress bars


class OutputLineSplitter:
    """Splits a replica's output into lines; lines longer than MAX_LINE_BYTES are split, too (bounded memory).

    A line that is overwritten with carriage returns (a progress bar) has its last state. A program with several bars
    moves the cursor down (newline), overwrites a bar, and moves the cursor up again: such a newline ends no line.

    NUL bytes are left out: a terminal shows nothing for them, and a file with one is binary for grep. The launcher of
    Open MPI 5 writes one after each of its messages.
    """

    MAX_LINE_BYTES = 1 << 16

    def __init__(self) -> None:
        self._rest = b""
        self._rows_above = 0  # the rows from the cursor down to the last row of a block of bars

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that these bytes end."""
        *ended, self._rest = (self._rest + chunk.replace(b"\0", b"")).split(b"\n")
        lines = [line for text in ended for line in self._end_row(text)]
        if (begin := self._rest.rstrip(b"\r").rfind(b"\r")) > 0:
            self._count_rows(self._rest[:begin])
            self._rest = self._rest[begin:]  # what a carriage return has overwritten
        while len(self._rest) > self.MAX_LINE_BYTES:
            lines.append(_last_overwrite(self._rest[: self.MAX_LINE_BYTES]))
            self._rest = self._rest[self.MAX_LINE_BYTES :]
        return lines

    @property
    def open_line(self) -> bytes:
        """The last state of the line that has not ended yet, or of the bar below it that was written last; b"" for
        none."""
        rows = _rows(self._rest)
        return next((row for row in reversed(rows) if row.strip()), b"")

    @property
    def is_overwritten(self) -> bool:
        """Whether the line that has not ended yet has carriage returns."""
        return b"\r" in self._rest

    def finish(self) -> list[bytes]:
        """The bytes after the last line end, as a line; [] if there are none."""
        line, is_bar = self.open_line, bool(self._rows_above or _CURSOR_UP.search(self._rest))
        rest, self._rest, self._rows_above = self._rest, b"", 0
        return [line] if line or (rest and not is_bar) else []

    def _end_row(self, text: bytes) -> list[bytes]:
        """The line that a newline after `text` ends; [] if it only moves the cursor within a block of bars."""
        self._count_rows(text)
        line = _rows(text)[-1]
        if self._rows_above == 0:
            return [line]
        self._rows_above -= 1
        return [line] if line.strip() else []

    def _count_rows(self, text: bytes) -> None:
        rows = sum(int(match[1] or 1) for match in _CURSOR_UP.finditer(text))
        self._rows_above = min(_MAX_ROWS, self._rows_above + rows)


def _rows(text: bytes) -> list[bytes]:
    """The last states of the rows that the cursor has left upwards, and of the row in which it is."""
    parts = _CURSOR_UP.split(text)[::2]
    return [_last_overwrite(part) for part in parts]


def _last_overwrite(line: bytes) -> bytes:
    """The last state of a line that was overwritten with carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
