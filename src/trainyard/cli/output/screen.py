"""The output of a command: logs of all replicas, notes and the progress line, to a terminal, files or pipes.

Rules:
- Logs, the result and notes each have a file descriptor; the progress line goes to that of the notes.
- On a terminal the progress line is the last line, redrawn after every batch; otherwise it is a plain line, printed
  when it changes, at most once a second.
- On a terminal a line that a program has not ended yet, such as a progress bar that is overwritten with carriage
  returns, is shown above the progress line and redrawn as it changes (footer.py). To a file or a pipe the state of an
  overwritten line is printed as a line, at most once in `ACTIVITY_PAUSE` seconds, and its last state when it ends.
- A reader who stops reading (a pager, a full pipe) stops the followers of logs, not the cluster (output_writer.py).
- Notes are prose and wrap at the width of a terminal; elsewhere each is a line. The lines of users' programs are
  never wrapped.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from trainyard.cli.output.footer import Footer, open_line_text
from trainyard.cli.output.layout import colour_on, prose, terminal_width, wants_colour
from trainyard.cli.output.output_writer import MAX_QUEUED_BYTES, OutputWriter
from trainyard.objects.printable import printable_output, printable_with_our_colours

ACTIVITY_PAUSE = 10.0  # seconds between two lines about one activity or of one progress bar, without a terminal
RECENT_LINES = 40  # the number of last output lines in `Screen.recent`
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # cyan, yellow, green ...


class Descriptors(NamedTuple):
    """File descriptors. With `-o json` only the result goes to stdout."""

    logs: int
    result: int
    notes: int


class Screen:
    """Create it in the event loop; call `close` at the end.

    on_broken: called in the event loop when a descriptor cannot be written any more."""

    def __init__(self, places: Descriptors, colour: bool, live: bool, on_broken: Callable[[], None]) -> None:
        self._places = places
        self._colour = colour
        self._logs_on_terminal = os.isatty(places.logs)
        self.live = live
        self.colour_result, self.colour_notes = colour_on(places.result), colour_on(places.notes)
        self.recent: deque[tuple[str, str]] = deque(maxlen=RECENT_LINES)  # the last lines of output: prefix and text
        self._loop = asyncio.get_running_loop()
        self._writer = OutputWriter(places.notes, on_broken)
        self._footer = Footer(places.notes)
        self._open_line_times: dict[str, float] = {}  # event loop time of an open line's begin or last print
        self._last_plain = ""
        self._activity_notes: dict[str, tuple[float, str]] = {}  # event loop time and text of the last note
        self._progress_ended = False
        self._colours: dict[str, int] = {}
        self._prefix_width = 0

    # --- output

    def align(self, prefixes: Iterable[str]) -> None:
        """Set the width to which the prefixes of all lines are padded. A longer prefix, such as that of an init
        container, does not change it."""
        self._prefix_width = max(map(len, prefixes), default=0)

    def log(self, prefix: str, line: bytes) -> None:
        """One line of a replica's output, without the line end. For a terminal all escape sequences but colours are
        escaped; to a file or a pipe the bytes are written unchanged, as `kubectl logs` and `cat` do, for programs."""
        self.recent.append((prefix, line.decode("utf-8", "replace").rstrip()))
        if self._logs_on_terminal:
            line = printable_output(line)
        if not prefix:
            self._writer.write(self._places.logs, line + b"\n")
            return
        text = f"{prefix.ljust(self._prefix_width)} | "
        if self._colour:
            colour = self._colours.setdefault(prefix, _COLOURS[len(self._colours) % len(_COLOURS)])
            text = f"\x1b[{colour}m{text}\x1b[0m"
        self._writer.write(self._places.logs, text.encode() + line + b"\n")

    def open_line(self, prefix: str, line: bytes, overwritten: bool) -> None:
        """Set the state of the line that a replica has not ended yet; b"" for none. `overwritten`: it is a progress
        bar or the like. Call it from the event loop."""
        if self.live and self._logs_on_terminal:
            if not line and prefix not in self._footer.open_lines:
                return
            self._footer.open_lines[prefix] = open_line_text(line)
            if not line:
                del self._footer.open_lines[prefix]
            self._draw()
        elif not line:
            self._open_line_times.pop(prefix, None)
        elif overwritten:
            now = self._loop.time()
            if now - self._open_line_times.setdefault(prefix, now) >= ACTIVITY_PAUSE:
                self._open_line_times[prefix] = now
                self.log(prefix, line)

    def result(self, text: str) -> None:
        """Queue a line for standard output."""
        self._writer.write(self._places.result, printable_with_our_colours(text, self.colour_result).encode() + b"\n")

    def note(self, text: str) -> None:
        """Queue a message for standard error, wrapped at the width of a terminal."""
        text = prose(text, terminal_width(self._places.notes))
        self._writer.write(self._places.notes, printable_with_our_colours(text, self.colour_notes).encode() + b"\n")

    def progress(self, live: str, plain: str) -> None:
        """Set the progress line: `live`, with the elapsed time, for a terminal, else `plain`."""
        if self._progress_ended:
            return
        if self.live:
            self._footer.progress = live
            self._draw()
        elif plain != self._last_plain:
            self._last_plain = plain
            self.note(plain)

    def activity(self, key: str, text: str | None) -> None:
        """Set the progress text of a long task that is not a replica's, such as a download; None when it has ended.

        On a terminal the texts are at the beginning of the progress line; otherwise each is a note, at most one per key
        in `ACTIVITY_PAUSE` seconds. Call it from the event loop.
        """
        if text is None:
            self._footer.activities.pop(key, None)
            self._activity_notes.pop(key, None)
        else:
            self._footer.activities[key] = text
        if self._progress_ended:
            return
        if self.live:
            self._draw()
        elif text is not None:
            now = self._loop.time()
            note_time, last_text = self._activity_notes.get(key, (float("-inf"), ""))
            if text != last_text and now - note_time >= ACTIVITY_PAUSE:
                self._activity_notes[key] = now, text
                self.note(text)

    def _draw(self) -> None:
        self._writer.set_footer(self._footer.lines(self._progress_ended))

    def end_progress(self) -> None:
        """Remove the progress line; there will be no other."""
        self._progress_ended = True
        self._draw()

    @property
    def output_error(self) -> OSError | None:
        """The first error of a write that is not EPIPE."""
        return self._writer.error

    @property
    def is_full(self) -> bool:
        """Whether so much output is queued that `wait_for_space` waits."""
        return self._writer.is_full

    async def wait_for_space(self) -> None:
        """Wait while too much output is queued. Call it before reading the next chunk of a log."""
        await self._writer.wait_for_space()

    async def close(self) -> None:
        """Wait until all queued output is written, or dropped if a descriptor is broken."""
        self._footer.open_lines.clear()
        self.end_progress()
        await self._writer.close()


def live_on(descriptor: int) -> bool:
    """Whether lines can be redrawn on this file descriptor: it is a terminal, and TERM is not dumb."""
    return os.isatty(descriptor) and os.environ.get("TERM") != "dumb"


__all__ = ["MAX_QUEUED_BYTES", "Descriptors", "Screen", "live_on", "wants_colour"]
