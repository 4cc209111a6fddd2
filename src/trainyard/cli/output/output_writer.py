"""Writes to file descriptors in a thread, and lines below the output that are redrawn after every batch of writes.

Rules:
- A reader who stops reading (a pager, a full pipe) stops the callers of `wait_for_space`, not the event loop.
- After EPIPE on a descriptor (`| head`), `on_broken` is called once and further output to the descriptor is dropped. A
  full disk is handled in the same way; `error` is set, too, and one message goes to the descriptor of the footer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from functools import partial

from trainyard.cli.output.footer import erasing
from trainyard.cli.output.layout import write_error_text

MAX_QUEUED_BYTES = 1 << 20


class OutputWriter:
    """Create it in the event loop; call `close` at the end.

    footer_descriptor: the descriptor of the footer and of the message about a full disk. on_broken: called in the event
    loop when a descriptor cannot be written any more."""

    def __init__(self, footer_descriptor: int, on_broken: Callable[[], None]) -> None:
        self.error: OSError | None = None  # the first write error that is not EPIPE
        self._footer_descriptor = footer_descriptor
        self._on_broken = on_broken
        self._broken_descriptors: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._queue: list[tuple[int, bytes]] = []
        self._queued_bytes = 0
        self.footer_lines: list[bytes] = []
        self._drawn_lines: list[bytes] = []
        self._closing = False
        self._space_waiters: list[asyncio.Future[None]] = []
        self._written = asyncio.Event()
        threading.Thread(target=self._write_all, name="output", daemon=True).start()

    def write(self, descriptor: int, data: bytes) -> None:
        """Queue bytes for the writing thread; it never blocks."""
        with self._lock:
            self._queue.append((descriptor, data))
            self._queued_bytes += len(data)
            self._lock.notify()

    def set_footer(self, lines: list[bytes]) -> None:
        """Set the lines below the output; the footer is on a terminal whenever there are any."""
        with self._lock:
            self.footer_lines = lines
            self._lock.notify()

    @property
    def is_full(self) -> bool:
        """Whether MAX_QUEUED_BYTES or more are queued, because the reader of the output is slow."""
        return self._queued_bytes >= MAX_QUEUED_BYTES

    async def wait_for_space(self) -> None:
        """Wait while MAX_QUEUED_BYTES or more are queued."""
        with self._lock:
            if not self.is_full:
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._space_waiters.append(waiter)
        await waiter

    async def close(self) -> None:
        """Wait until all queued output is written (or dropped, if a descriptor is broken), and end the thread."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        await self._written.wait()

    # --- the writing thread

    def _write_all(self) -> None:
        while self._write_batch():
            pass
        self._call_in_loop(self._written.set)

    def _write_batch(self) -> bool:
        with self._lock:
            self._lock.wait_for(lambda: self._queue or self._closing or self.footer_lines != self._drawn_lines)
            batch, self._queue = self._queue, []
            footer_lines, running = self.footer_lines, bool(batch) or not self._closing
        self._write_now(self._footer_descriptor, erasing(self._drawn_lines))
        for descriptor, data in _join_writes(batch):
            self._write_now(descriptor, data)
        self._write_now(self._footer_descriptor, b"\n".join(footer_lines))
        self._drawn_lines = footer_lines
        with self._lock:
            self._queued_bytes -= sum(len(data) for _, data in batch)
            waiters, self._space_waiters = self._space_waiters, []
        for waiter in waiters:
            self._call_in_loop(partial(_set_result, waiter))
        return running

    def _write_now(self, descriptor: int, data: bytes) -> None:
        while data and descriptor not in self._broken_descriptors:
            try:
                data = data[os.write(descriptor, data) :]
            except OSError as error:
                self._broken_descriptors.add(descriptor)
                if error.errno != errno.EPIPE and self.error is None:
                    self.error = error
                    if descriptor != self._footer_descriptor:
                        self._write_now(self._footer_descriptor, f"{write_error_text(error)}\n".encode())
                self._call_in_loop(self._on_broken)

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _join_writes(batch: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Join consecutive writes to the same descriptor."""
    joined: list[tuple[int, list[bytes]]] = []
    for descriptor, data in batch:
        if not joined or joined[-1][0] != descriptor:
            joined.append((descriptor, []))
        joined[-1][1].append(data)
    return [(descriptor, b"".join(parts)) for descriptor, parts in joined]
