"""Where lines meet: logs of all replicas, notes, and the progress line, on one terminal or into files and pipes.

Rules:
- Logs, the result, and notes each have a place (a file descriptor); progress goes where notes go.
- On a terminal the progress line is the last line, redrawn after every batch; elsewhere it is a plain line when it
  changes, at most once a second.
- One thread writes. A reader who stops reading (a pager, a full pipe) stops the followers of logs, not the cluster.
- A reader who went away (`| head`) is told once to `broken`; what would be written after that is dropped. A full disk
  is the same, with `output_error` set, and is said once where notes go.
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

from trainyard.cli.layout import cannot_write, colour_on, prose, shortened, terminal_width, wants_colour
from trainyard.objects.printable import printable, printable_but_colours, printable_output

FULL = 1 << 20
_CLEAR = b"\r\x1b[K"
ACTIVITY_PAUSE = 10.0  # seconds between two lines about one activity, where there is no terminal
RECENT = 40  # lines of output of which it is known that they were just shown
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # cyan, yellow, green ...


class Places(NamedTuple):
    """File descriptors. With `-o json` the result has stdout for itself."""

    logs: int
    result: int
    notes: int


class Screen:
    """One run's output. Made inside the event loop; `close` ends it."""

    def __init__(self, places: Places, colour: bool, live: bool, broken: Callable[[], None]) -> None:
        self._broken_descriptors: set[int] = set()
        self._places = places
        self._colour = colour
        self._logs_on_terminal = os.isatty(places.logs)
        self.live = live
        self.colour_result, self.colour_notes = colour_on(places.result), colour_on(places.notes)
        self.output_error: OSError | None = None  # why output could not be written; None for a reader who went away
        self.recent: deque[tuple[str, str]] = deque(maxlen=RECENT)  # the last lines of output: prefix and text
        self._on_broken = broken
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._queue: list[tuple[int, bytes]] = []
        self._queued_bytes = 0
        self._progress_line = b""
        self._drawn_line = b""
        self._last_plain = ""
        self._live_progress = ""
        self._activities: dict[str, str] = {}
        self._activity_notes: dict[str, tuple[float, str]] = {}  # when the last note was written, and its text
        self._progress_ended = False
        self._closing = False
        self._space_waiters: list[asyncio.Future[None]] = []
        self._written = asyncio.Event()
        self._colours: dict[str, int] = {}
        self._prefix_width = 0
        threading.Thread(target=self._write_all, name="screen", daemon=True).start()

    # --- what is said

    def log(self, prefix: str, line: bytes) -> None:
        """One line of a replica's output, without its end. On a terminal it may have colours and nothing else that
        steers it; into a file or a pipe it goes byte for byte, as `kubectl logs` and `cat` write it, for programs."""
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
        self._enqueue(self._places.result, printable_but_colours(text).encode("utf-8", "replace") + b"\n")

    def note(self, text: str) -> None:
        text = prose(text, terminal_width())
        self._enqueue(self._places.notes, printable_but_colours(text).encode("utf-8", "replace") + b"\n")

    def progress(self, live: str, plain: str) -> None:
        """The progress line, with elapsed time for a terminal, without for anything else."""
        if self._progress_ended:
            return
        if self.live:
            self._live_progress = live
            self._draw()
        elif plain != self._last_plain:
            self._last_plain = plain
            self.note(plain)

    def activity(self, key: str, text: str | None) -> None:
        """Work that takes long and is not a replica's, such as a download: how far it is; None when it is over.

        On a terminal the texts stand at the beginning of the progress line; elsewhere each is a note, at most one in
        `ACTIVITY_PAUSE` seconds. Call it from the event loop.
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
            self._progress_line = shortened(printable(line, line=True), terminal_width() - 1).encode("utf-8", "replace")
            self._lock.notify()

    def end_progress(self) -> None:
        self._progress_ended = True
        with self._lock:
            self._progress_line = b""
            self._lock.notify()

    async def space(self) -> None:
        """Wait until the reader has caught up. Followers of logs wait here before they read on."""
        with self._lock:
            if self._queued_bytes < FULL:
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._space_waiters.append(waiter)
        await waiter

    async def close(self) -> None:
        """Everything said is written when this returns (or its reader is gone)."""
        self.end_progress()
        with self._lock:
            self._closing = True
            self._lock.notify()
        await self._written.wait()

    # --- the thread

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
                        self._write(self._places.notes, f"{cannot_write(error)}\n".encode())
                self._call_in_loop(self._on_broken)

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _join_writes(batch: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Neighbours for the same place as one write."""
    joined: list[tuple[int, list[bytes]]] = []
    for descriptor, data in batch:
        if not joined or joined[-1][0] != descriptor:
            joined.append((descriptor, []))
        joined[-1][1].append(data)
    return [(descriptor, b"".join(parts)) for descriptor, parts in joined]


class Cut:
    """Cuts a replica's output into lines. A line that gets too long is cut there, so that nothing grows for ever."""

    LONGEST = 1 << 16

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        while len(self._rest) > self.LONGEST:
            lines.append(self._rest[: self.LONGEST])
            self._rest = self._rest[self.LONGEST :]
        return [_last_overwrite(line) for line in lines]

    def end(self) -> list[bytes]:
        """What stands after the last line end."""
        rest, self._rest = self._rest, b""
        return [_last_overwrite(rest)] if rest else []


def _last_overwrite(line: bytes) -> bytes:
    """A line that was drawn over itself (a progress bar with carriage returns) is shown as it looked in the end."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


__all__ = ["FULL", "Cut", "Places", "Screen", "wants_colour"]
