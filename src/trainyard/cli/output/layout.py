"""Text that fits the terminal: wrapped prose, tables that are cut, coloured states. Pure, except for the functions
that read the terminal's width or write to stderr.

Rules:
- What goes to a terminal is never wider than it ($COLUMNS overrides its width). What goes to a file or a pipe is
  neither wrapped nor cut: a message is one line there, a table has all of its text. Each stream is judged by itself.
- No word is broken: a word that does not fit has a line of its own, indented less if it fits then. At the beginning of
  a value, one that never fits stays beside its label. `commands in backticks` and quoted paths ('/my folder/x') are one
  word, so that they can be copied.
- The output of users' programs does not pass through this module.
- Text from API objects (names, messages, fields) cannot control the terminal: cells and values are made printable,
  and `PrintableStream`, which wraps stdout and stderr in every command, passes no escape sequence but the colours
  below, and these to a terminal only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, cast

import click

from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.printable import printable, printable_with_our_colours

UNKNOWN_WIDTH = 80  # columns of a terminal that does not say how many it has
UNLIMITED = sys.maxsize  # columns of a file or a pipe
MIN_WIDTH = 40
MIN_CELL_WIDTH = 16  # minimal width of a cut cell
MIN_TEXT_WIDTH = 28  # minimal width of a cut cell in the last column, which is often prose
NARROW_WIDTH, NARROWEST_WIDTH = 8, 3  # minimal widths in a table of many columns that does not fit otherwise
ELLIPSIS = "…"
STATE_COLUMNS = frozenset({"STATE", "RESULT"})
_RESET = "\x1b[0m"
_GREEN, _RED, _YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"
_GOOD_STATES = frozenset({"Running", "Succeeded", "Complete", "Completed", "up", "fine", "ready"})
_BAD_STATES = lazy_pattern(r"Failed|Err|BackOff|OOMKilled|Invalid|Evicted|problem|not up|Unschedulable")
_NEUTRAL_STATES = frozenset({"", "Unknown", "Suspended", "Stopped", "Deleted", "note", "none"})
_QUOTED = r"[^\s`]*`[^`\n]+`[^\s`]*(?!\S)|[^\s`']*'/[^'\n]+'[^\s']*(?!\S)"
_WORD = lazy_pattern(rf"(\s*)((?<!\S)(?:{_QUOTED})|export \w+=\S+|\S+)")


def terminal_width(descriptor: int) -> int:
    """The number of columns of the terminal at this file descriptor, at least MIN_WIDTH; UNLIMITED if the descriptor is
    a file or a pipe."""
    try:
        if not os.isatty(descriptor):
            return UNLIMITED
        columns = os.get_terminal_size(descriptor).columns
    except OSError:
        return UNLIMITED
    variable = os.environ.get("COLUMNS", "")
    return max(MIN_WIDTH, (int(variable) if variable.isdecimal() else 0) or columns or UNKNOWN_WIDTH)


def terminal_prose(text: str, descriptor: int = 1) -> str:
    """Prose for this file descriptor: on a terminal wrapped at its width, with a hanging indent."""
    return prose(text, terminal_width(descriptor))


def terminal_table(rows: Sequence[Sequence[str]], wide: bool = False) -> list[str]:
    """The lines of a table for stdout: at most as wide as the terminal, or uncut with -o wide."""
    return table_lines(rows, UNLIMITED if wide else terminal_width(1), colour_on(1))


def wants_colour(terminal: bool, environment: Mapping[str, str]) -> bool:
    """False if the output is not a terminal, if NO_COLOR is set, or if TERM is dumb."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def colour_on(descriptor: int) -> bool:
    """True if output to this file descriptor may have colours."""
    try:
        return wants_colour(os.isatty(descriptor), os.environ)
    except OSError:
        return False


def state_colour(state: str) -> str:
    """The escape sequence of the colour for a state; "" for none."""
    if state in _GOOD_STATES:
        return _GREEN
    if state in _NEUTRAL_STATES or state[0].isdigit():  # 2/3 ready
        return ""
    return _RED if _BAD_STATES.search(state) else _YELLOW


def coloured(state: str, colour: bool) -> str:
    """The state in its colour."""
    code = state_colour(state) if colour else ""
    return f"{code}{state}{_RESET}" if code else state


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Text wrapped at that width: the first line begins with `first`, the others with `rest` (default: as many
    spaces). Spaces between the words of one line stay as they are."""
    rest = " " * len(first) if rest is None else rest
    lines, line, is_empty = [], first, True
    for spaces, word in _WORD.findall(text):
        spaces = "" if is_empty else " " if "\n" in spaces else spaces
        is_too_wide = len(line) + len(spaces) + len(word) > width
        if is_too_wide and (not is_empty or (line.strip() and len(word) <= width)):
            lines.append(line.rstrip())
            line, spaces = rest if len(word) > width else rest[: width - len(word)], ""
        line += spaces + word
        is_empty = False
    return [*lines, line.rstrip()]


def prose(text: str, width: int, indent: str = "  ") -> str:
    """Wrap each line that is wider than `width`, with a hanging indent; the others stay as they are."""
    lines: list[str] = []
    for line in text.split("\n"):
        leading = line[: len(line) - len(line.lstrip())]
        lines += [line] if len(line) <= width else wrapped(line, width, leading, leading + indent)
    return "\n".join(lines)


def truncate(text: str, width: int) -> str:
    """The text in at most `width` characters, with an ellipsis when it was cut."""
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + ELLIPSIS


def table_lines(rows: Sequence[Sequence[str]], width: int, colour: bool = False) -> list[str]:
    """The lines of a table with a header row. If it is too wide, the cells of the last column are cut, then those of
    the widest other columns. `-o wide` prints tables uncut."""
    if not rows:
        return []
    rows = [[printable(cell, line=True) for cell in row] for row in rows]
    limits = _column_limits([max(map(len, column)) for column in zip(*rows, strict=True)], width)
    short_rows = [[truncate(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in rows]
    states = state_columns(rows[0]) if colour else []
    widths = [max(map(len, column)) for column in zip(*short_rows, strict=True)]
    colours = [
        {column: state_colour(row[column]) for column in states} if number else {} for number, row in enumerate(rows)
    ]
    return [table_line(row, widths, row_colours) for row, row_colours in zip(short_rows, colours, strict=True)]


def field_lines(pairs: Sequence[tuple[str, str]], width: int, colour: bool = False) -> list[str]:
    """A line for each name with its value, aligned; a long value is wrapped and aligned with its first line."""
    pairs = [(name, printable(value)) for name, value in pairs if value]
    name_width = max((len(name) for name, _ in pairs), default=0)
    lines: list[str] = []
    for name, value in pairs:
        value_lines = wrapped(value, width, f"{name.ljust(name_width)}  ")
        if colour and name.rstrip(":").upper() in STATE_COLUMNS:
            value_lines[0] = value_lines[0].replace(value, coloured(value, colour))
        lines += value_lines
    return lines


def _column_limits(widths: list[int], width: int) -> list[int]:
    """The maximal width of each column. The last column is reduced first, then the widest one; if that is not enough,
    the reduced columns further, and at last all of them."""
    natural_widths, widths = widths, [*widths]
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    if excess > 0 and len(widths) > 1:
        reduction = min(excess, max(0, widths[-1] - MIN_TEXT_WIDTH))
        widths[-1] -= reduction
        excess -= reduction
    while excess > 0 and max(widths) > MIN_CELL_WIDTH:
        candidates = widths[:-1] if widths[-1] <= MIN_TEXT_WIDTH and max(widths[:-1]) > MIN_CELL_WIDTH else widths
        widest = widths.index(max(candidates))
        widths[widest] -= 1
        excess -= 1
    for minimum, is_any in ((NARROW_WIDTH, False), (NARROWEST_WIDTH, True)):
        while excess > 0:
            columns = [
                column
                for column, natural_width in enumerate(natural_widths)
                if widths[column] > minimum and (is_any or widths[column] < natural_width)
            ]
            if not columns:
                break
            widths[max(columns, key=widths.__getitem__)] -= 1
            excess -= 1
    return widths


def state_columns(heads: Sequence[str]) -> list[int]:
    """The indexes of the columns that show a state, which are coloured."""
    return [column for column, head in enumerate(heads) if head in STATE_COLUMNS]


def table_line(row: Sequence[str], widths: Sequence[int], colours: Mapping[int, str]) -> str:
    """One row as a line. `colours`: column index -> escape sequence, "" for none."""
    row = [printable(cell, line=True) for cell in row]
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    cells[-1] = row[-1]
    for column, code in colours.items():
        if code:
            cells[column] = f"{code}{row[column]}{_RESET}{' ' * (len(cells[column]) - len(row[column]))}"
    return "  ".join(cells).rstrip()


class PrintableStream:
    """A text stream that makes escape sequences (but our colours on a terminal) and carriage returns visible before it
    writes to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colour = False
        with contextlib.suppress(OSError, ValueError):  # it has no descriptor, or is closed
            self._colour = colour_on(stream.fileno())

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped."""
        self._stream.write(printable_with_our_colours(text, self._colour) if isinstance(text, str) else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`, for each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """Replace sys.stdout and sys.stderr by a PrintableStream. `sys.stdout.buffer` is the original one, for bytes."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(Any, stream if stream is None else PrintableStream(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def clear_line() -> None:
    """Erase the progress line on stderr. Call it only if stderr is a terminal."""
    sys.stderr.flush()
    sys.stderr.buffer.write(b"\r\x1b[K")
    sys.stderr.buffer.flush()


def write_error_text(error: OSError) -> str:
    """The message when standard output cannot be written, such as on a full disk."""
    return f"the output cannot be written: {error.strerror}; free some space, or write it somewhere else"


def note(text: str) -> None:
    """Print text to stderr, wrapped at the width of a terminal."""
    click.echo(terminal_prose(printable(text), 2), err=True)


def note_problems(problems: Iterable[object]) -> None:
    """Print each problem of a manifest or of the command line to stderr, as one line unless a terminal is narrower."""
    for problem in problems:
        note(printable(str(problem), line=True))
