"""The log of one run, limited in size while its program runs: its beginning and its end stay, the middle is deallocated
as a hole in the file, followed by a line with a note.

Rules:
- Only the container's init writes to the file, so no output is lost while the hole is made.
- Offsets do not change: a reader that follows the log continues at its offset. Readers skip the hole
  (objects/log_files).
- On a file system without hole punching the log stays complete."""

from __future__ import annotations

import contextlib
import fcntl
import os

from . import syscalls  # relative: see the package's docstring

_MAX_LINE = 1 << 16  # bytes; the note is extended to the next end of a line within these


class LimitedLogFile:
    """`size`: approximate maximum of disk space in bytes; 0 for no limit. The first quarter of `size` and at least the
    last half stay. `fd`: open for reading and appending."""

    def __init__(self, fd: int, size: int = 0) -> None:
        self.fd = fd
        block = os.fstat(fd).st_blksize
        self._quarter = size // 4 // block * block
        self._block = block
        self._unchecked = 0  # bytes written since the last check of the file's size

    def append(self, piece: bytes) -> None:
        """Append to the log. On a full disk output is dropped, so that the program does not block."""
        with contextlib.suppress(OSError):
            rest = piece
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        self._unchecked += len(piece)
        if self._quarter and self._unchecked >= self._quarter:
            self._unchecked = 0
            try:
                self._punch_middle()
            except OSError:
                self._quarter = 0  # this file system does not support holes

    def _punch_middle(self) -> None:
        size = os.fstat(self.fd).st_size
        begin, end = self._quarter, (size - 2 * self._quarter) // self._block * self._block
        if size <= 4 * self._quarter:
            return
        syscalls.punch_hole(self.fd, begin, end - begin)
        note = f"[trainyard: {end - begin} bytes of this log were removed to limit its size]".encode()
        text = os.pread(self.fd, _MAX_LINE, end)
        line_end = text.find(b"\n", len(note))
        note = note.ljust(line_end) if line_end >= 0 else note + b"\n"
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags & ~os.O_APPEND)  # with O_APPEND, pwrite appends on Linux
        try:
            os.pwrite(self.fd, b"\n", begin - 1)
            os.pwrite(self.fd, note, end)
        finally:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
