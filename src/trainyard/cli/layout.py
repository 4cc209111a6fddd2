"""Text that fits the terminal: wrapped prose, tables that are cut, state words in colour. Pure but for `width`.

Rules:
- What is asked for is never wider than the terminal, or than 80 columns where there is none (COLUMNS decides both).
- No word is broken: a word that is wider than the line has a line of its own. `commands in backticks` are one word,
  so that they can be copied.
- The output of users' programs does not pass through here.
- What others wrote (names, messages, fields) cannot steer the terminal: cells and values are printable text, and
  `PrintableStream`, which stands before stdout and stderr in every command, lets only the colours above through.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, cast

import click

from trainyard.objects.printable import printable, printable_but_colours

UNKNOWN_WIDTH = 80
LEAST_WIDTH = 40
LEAST_CELL = 16  # columns that a cut cell keeps
LEAST_TEXT = 28  # and one of the last column, which is often prose
CUT = "…"
STATE_COLUMNS = frozenset({"STATE", "RESULT"})
_PLAIN = "\x1b[0m"
_GREEN, _RED, _YELLOW, _CYAN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
_GOOD = frozenset({"Running", "Succeeded", "Complete", "Completed", "up", "fine", "ready"})
_BAD = re.compile(r"Failed|Err|BackOff|OOMKilled|Invalid|Evicted|problem|not up|Unschedulable")
_NEUTRAL = frozenset({"", "Unknown", "Suspended", "Stopped", "Deleted", "note", "none"})
_WORD = re.compile(r"(?<!\S)[^\s`]*`[^`\n]+`[^\s`]*(?!\S)|export \w+=\S+|\S+")


def terminal_width() -> int:
    """The columns there are; 80 where nobody knows."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def terminal_prose(text: str) -> str:
    """Prose in lines of the terminal's width, with a hanging indent."""
    return prose(text, terminal_width())


def terminal_table(rows: Sequence[Sequence[str]], wide: bool = False) -> list[str]:
    """A table as stdout has it: as wide as the terminal, or, with -o wide, as wide as it is."""
    colour = colour_on(1)
    return fitted(rows, sys.maxsize if wide else terminal_width(), colour)


def wants_colour(terminal: bool, environment: Mapping[str, str]) -> bool:
    """No colour when not a terminal, when NO_COLOR is set, or when the terminal cannot."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def colour_on(descriptor: int) -> bool:
    """Whether what is written there may have colours."""
    try:
        return wants_colour(os.isatty(descriptor), os.environ)
    except OSError:
        return False


def state_colour(state: str) -> str:
    """The escape sequence for a word about a state; "" for none."""
    if state in _GOOD:
        return _GREEN
    if state in _NEUTRAL or state[0].isdigit():  # 2/3 ready
        return ""
    return _RED if _BAD.search(state) else _YELLOW


def painted(state: str, colour: bool) -> str:
    """The word in its colour."""
    code = state_colour(state) if colour else ""
    return f"{code}{state}{_PLAIN}" if code else state


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Prose in lines of that width: the first begins with `first`, the others with `rest` (blanks of that length)."""
    rest = " " * len(first) if rest is None else rest
    lines, line = [], first
    empty = True
    for word in _WORD.findall(text):
        if not empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, empty = rest, True
        line = f"{line}{word}" if empty else f"{line} {word}"
        empty = False
    return [*lines, line.rstrip()]


def prose(text: str, width: int, indent: str = "  ") -> str:
    """Lines that fit already stay as they are; each of the others is wrapped, with a hanging indent."""
    lines: list[str] = []
    for line in text.split("\n"):
        begin = line[: len(line) - len(line.lstrip())]
        lines += [line] if len(line) <= width else wrapped(line, width, begin, begin + indent)
    return "\n".join(lines)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + CUT


def fitted(rows: Sequence[Sequence[str]], width: int, colour: bool = False) -> list[str]:
    """A table with its heads in the first row. Too wide, it loses the end of its last column, and then of the widest
    others. `-o wide` prints tables whole."""
    if not rows:
        return []
    rows = [[printable(cell, line=True) for cell in row] for row in rows]
    limits = _limits([max(map(len, column)) for column in zip(*rows, strict=True)], width)
    short = [[shortened(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in rows]
    states = state_columns(rows[0]) if colour else []
    widths = [max(map(len, column)) for column in zip(*short, strict=True)]
    colours = [{at: state_colour(row[at]) for at in states} if number else {} for number, row in enumerate(rows)]
    return [table_line(row, widths, of_row) for row, of_row in zip(short, colours, strict=True)]


def fields(pairs: Sequence[tuple[str, str]], width: int, colour: bool = False) -> list[str]:
    """Names and values below each other; a long value goes on under its beginning."""
    pairs = [(name, printable(value)) for name, value in pairs if value]
    left = max((len(name) for name, _ in pairs), default=0)
    lines: list[str] = []
    for name, value in pairs:
        value_lines = wrapped(value, width, f"{name.ljust(left)}  ")
        if colour and name.rstrip(":").upper() in STATE_COLUMNS:
            value_lines[0] = value_lines[0].replace(value, painted(value, colour))
        lines += value_lines
    return lines


def _limits(widths: list[int], width: int) -> list[int]:
    """How wide each column may be. The last one gives way first, then the widest."""
    over = sum(widths) + 2 * (len(widths) - 1) - width
    if over > 0 and len(widths) > 1:
        give = min(over, max(0, widths[-1] - LEAST_TEXT))
        widths[-1] -= give
        over -= give
    while over > 0 and max(widths) > LEAST_CELL:
        others = widths[:-1] if widths[-1] <= LEAST_TEXT and max(widths[:-1]) > LEAST_CELL else widths
        widest = widths.index(max(others))
        widths[widest] -= 1
        over -= 1
    return widths


def state_columns(heads: Sequence[str]) -> list[int]:
    return [at for at, head in enumerate(heads) if head in STATE_COLUMNS]


def table_line(row: Sequence[str], widths: Sequence[int], colours: Mapping[int, str]) -> str:
    """One row; some of its cells in colour."""
    row = [printable(cell, line=True) for cell in row]
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    cells[-1] = row[-1]
    for at, code in colours.items():
        if code:
            cells[at] = f"{code}{row[at]}{_PLAIN}{' ' * (len(cells[at]) - len(row[at]))}"
    return "  ".join(cells).rstrip()


class PrintableStream:
    """A text stream in front of another one: escape sequences and carriage returns of others are shown, not obeyed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable_but_colours(text) if isinstance(text, str) else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """While it lasts, nothing that is printed steers the terminal. `sys.stdout.buffer` stays for bytes."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(Any, stream if stream is None else PrintableStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def clear_line() -> None:
    """Remove the line of progress on stderr, where it is a terminal."""
    sys.stderr.flush()
    sys.stderr.buffer.write(b"\r\x1b[K")
    sys.stderr.buffer.flush()


def cannot_write(error: OSError) -> str:
    return f"the output cannot be written: {error.strerror}; free some space, or write it somewhere else"


def note(text: str) -> None:
    """For the reader's eyes: on stderr, wrapped."""
    click.echo(prose(text, terminal_width()), err=True)
