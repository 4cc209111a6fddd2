"""The output of a command: logs of all replicas, notes and the progress line, to a terminal, files or pipes.

Rules:
- Logs, the result and notes each have a file descriptor; the progress line goes to that of the notes.
- On a terminal the progress line is the last line, redrawn after every batch; otherwise it is a plain line, printed
  when it changes, at most once a second.
- One thread writes. A reader who stops reading (a pager, a full pipe) stops the followers of logs, not the cluster.
- After EPIPE on a descriptor (`| head`), `on_broken` is called once and further output to the descriptor is dropped. A
  full disk is handled in the same way; `output_error` is set, too, and one message goes to the notes.
- Notes are prose and wrap at the width of the terminal. The lines of users' programs are never wrapped.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainyard.cli.layout import colour_on, prose, terminal_width, truncate, wants_colour, write_error_text
from trainyard.objects.printable import printable, printable_output, printable_with_our_colours

MAX_QUEUED_BYTES = 1 << 20
_CLEAR = b"\r\x1b[K"
ACTIVITY_PAUSE = 10.0  # seconds between two lines about one activity, where there is no terminal
RECENT_LINES = 40  # the number of last output lines in `Screen.recent`
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # cyan, yellow, green ...


class Descriptors(NamedTuple):
    """File descriptors. With `-o json` only the result goes to stdout."""

    logs: int
    result: int
    notes: int


class Screen:
    """Queues output and writes it in a thread. Create it in the event loop; call `close` at the end.

    broken: called in the event loop when a descriptor cannot be written any more."""

    def __init__(self, places: Descriptors, colour: bool, live: bool, on_broken: Callable[[], None]) -> None:
        self._broken_descriptors: set[int] = set()
        self._places = places
        self._colour = colour
        self._logs_on_terminal = os.isatty(places.logs)
        self.live = live
        self.colour_result, self.colour_notes = colour_on(places.result), colour_on(places.notes)
        self.output_error: OSError | None = None  # the first write error that is not EPIPE
        self.recent: deque[tuple[str, str]] = deque(maxlen=RECENT_LINES)  # the last lines of output: prefix and text
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._queue: list[tuple[int, bytes]] = []
        self._queued_bytes = 0
        self._progress_line = b""
        self._drawn_line = b""
        self._last_plain = ""
        self._live_progress = ""
        self._activities: dict[str, str] = {}
        self._activity_notes: dict[str, tuple[float, str]] = {}  # event loop time and text of the last note
        self._progress_ended = False
        self._closing = False
        self._space_waiters: list[asyncio.Future[None]] = []
        self._written = asyncio.Event()
        self._colours: dict[str, int] = {}
        self._prefix_width = 0
        threading.Thread(target=self._write_all, name="screen", daemon=True).start()

    # --- output

    def log(self, prefix: str, line: bytes) -> None:
        """One line of a replica's output, without the line end. For a terminal all escape sequences but colours are
        escaped; to a file or a pipe the bytes are written unchanged, as `kubectl logs` and `cat` do, for programs."""
        self.recent.append((prefix, line.decode("utf-8", "replace").rstrip()))
        if self._logs_on_terminal:
            line = printable_output(line)
        if not prefix:
            self._enqueue(self._places.logs, line + b"\n")
            return
        self._prefix_width = max(self._prefix_width, len(prefix))
        text = f"{prefix.ljust(self._prefix_width)} | "
        if self._colour:
            colour = self._colours.setdefault(prefix, _COLOURS[len(self._colours) % len(_COLOURS)])
            text = f"\x1b[{colour}m{text}\x1b[0m"
        self._enqueue(self._places.logs, text.encode() + line + b"\n")

    def result(self, text: str) -> None:
        """Queue a line for standard output."""
        self._enqueue(self._places.result, printable_with_our_colours(text).encode("utf-8", "replace") + b"\n")

    def note(self, text: str) -> None:
        """Queue a message for standard error, wrapped to the width of the terminal."""
        text = prose(text, terminal_width())
        self._enqueue(self._places.notes, printable_with_our_colours(text).encode("utf-8", "replace") + b"\n")

    def progress(self, live: str, plain: str) -> None:
        """Sets the progress line: `live`, with the elapsed time, for a terminal, else `plain`."""
        if self._progress_ended:
            return
        if self.live:
            self._live_progress = live
            self._draw()
        elif plain != self._last_plain:
            self._last_plain = plain
            self.note(plain)

    def activity(self, key: str, text: str | None) -> None:
        """Sets the progress text of a long task that is not a replica's, such as a download; None when it has ended.

        On a terminal the texts are at the beginning of the progress line; otherwise each is a note, at most one per key
        in `ACTIVITY_PAUSE` seconds. Call it from the event loop.
        """
        if text is None:
            self._activities.pop(key, None)
            self._activity_notes.pop(key, None)
        else:
            self._activities[key] = text
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
        line = " · ".join(filter(None, [*self._activities.values(), self._live_progress]))
        with self._lock:
            self._progress_line = truncate(printable(line, line=True), terminal_width() - 1).encode("utf-8", "replace")
            self._lock.notify()

    def end_progress(self) -> None:
        """Remove the progress line; there will be no other."""
        self._progress_ended = True
        with self._lock:
            self._progress_line = b""
            self._lock.notify()

    @property
    def is_full(self) -> bool:
        """Whether MAX_QUEUED_BYTES or more are queued, because the reader of the output is slow."""
        return self._queued_bytes >= MAX_QUEUED_BYTES

    async def wait_for_space(self) -> None:
        """Waits while MAX_QUEUED_BYTES or more are queued. Call it before reading the next chunk of a log."""
        with self._lock:
            if not self.is_full:
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._space_waiters.append(waiter)
        await waiter

    async def close(self) -> None:
        """Waits until all queued output is written (or dropped, if a descriptor is broken), and ends the thread."""
        self.end_progress()
        with self._lock:
            self._closing = True
            self._lock.notify()
        await self._written.wait()

    # --- the writing thread

    def _enqueue(self, descriptor: int, data: bytes) -> None:
        with self._lock:
            self._queue.append((descriptor, data))
            self._queued_bytes += len(data)
            self._lock.notify()

    def _write_all(self) -> None:
        while self._write_batch():
            pass
        self._call_in_loop(self._written.set)

    def _write_batch(self) -> bool:
        with self._lock:
            self._lock.wait_for(lambda: self._queue or self._closing or self._progress_line != self._drawn_line)
            batch, self._queue = self._queue, []
            progress_line, running = self._progress_line, bool(batch) or not self._closing
        if self._drawn_line:
            self._write(self._places.notes, _CLEAR)
        for descriptor, data in _join_writes(batch):
            self._write(descriptor, data)
        if progress_line:
            self._write(self._places.notes, progress_line)
        self._drawn_line = progress_line
        with self._lock:
            self._queued_bytes -= sum(len(data) for _, data in batch)
            waiters, self._space_waiters = self._space_waiters, []
        for waiter in waiters:
            self._call_in_loop(partial(_set_result, waiter))
        return running

    def _write(self, descriptor: int, data: bytes) -> None:
        while data and descriptor not in self._broken_descriptors:
            try:
                data = data[os.write(descriptor, data) :]
            except OSError as error:
                self._broken_descriptors.add(descriptor)
                if error.errno != errno.EPIPE and self.output_error is None:
                    self.output_error = error
                    if descriptor != self._places.notes:
                        self._write(self._places.notes, f"{write_error_text(error)}\n".encode())
                self._call_in_loop(self._on_broken)

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _join_writes(batch: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Joins consecutive writes to the same descriptor."""
    joined: list[tuple[int, list[bytes]]] = []
    for descriptor, data in batch:
        if not joined or joined[-1][0] != descriptor:
            joined.append((descriptor, []))
        joined[-1][1].append(data)
    return [(descriptor, b"".join(parts)) for descriptor, parts in joined]


class OutputLineSplitter:
    """Splits a replica's output into lines; lines longer than MAX_LINE_BYTES are split, too (bounded memory)."""

    MAX_LINE_BYTES = 1 << 16

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The complete lines, without newline, after a further chunk. A line beyond MAX_LINE_BYTES is split."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        while len(self._rest) > self.MAX_LINE_BYTES:
            lines.append(self._rest[: self.MAX_LINE_BYTES])
            self._rest = self._rest[self.MAX_LINE_BYTES :]
        return [_last_overwrite(line) for line in lines]

    def finish(self) -> list[bytes]:
        """The bytes after the last line end, as a line; [] if there are none."""
        rest, self._rest = self._rest, b""
        return [_last_overwrite(rest)] if rest else []


def _last_overwrite(line: bytes) -> bytes:
    """The last state of a line that was overwritten with carriage returns (a progress bar)."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


__all__ = ["MAX_QUEUED_BYTES", "Descriptors", "OutputLineSplitter", "Screen", "wants_colour"]
