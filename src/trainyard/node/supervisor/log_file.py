"""The log of one run, limited in size while its program runs: its beginning and its end stay, the middle is deallocated
as a hole in the file, followed by a line with a note.

Rules:
- Only the container's init writes to the file, so no output is lost while the hole is made.
- Offsets do not change: a reader that follows the log continues at its offset. Readers skip the hole
  (objects/log_files).
- On a file system without hole punching the log stays complete.
- On a full disk the log releases its middle, so that new output is written and its followers see it.
- Output that cannot be written all the same is counted, so that the program does not block. When the log can be written
  again, a line says how many bytes are missing there."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Any

from . import syscalls  # relative: see the package's docstring

_MAX_LINE = 1 << 16  # bytes; the note is extended to the next end of a line within these
_LAST_BYTES = 1000  # the end of the lost output that is reported


class LostOutput:
    """The output that could not be written to a log."""

    def __init__(self) -> None:
        self.bytes = 0
        self.reason = ""  # the text of the last error
        self._last = b""

    def add(self, piece: bytes, error: OSError) -> None:
        """Count bytes that could not be written, and keep the reason."""
        self.bytes += len(piece)
        self.reason = error.strerror or str(error)
        self._last = (self._last + piece)[-_LAST_BYTES:]

    def message(self) -> dict[str, Any]:
        """The number of bytes, the reason, and the last bytes as text, as they are sent to the runner."""
        return {"bytes": self.bytes, "reason": self.reason, "last": self._last.decode(errors="replace")}


class LimitedLogFile:
    """`size`: approximate maximum of disk space in bytes; 0 for no limit. The first quarter of `size` and at least the
    last half stay. `fd`: open for reading and appending."""

    def __init__(self, fd: int, size: int = 0) -> None:
        self.fd = fd
        block = os.fstat(fd).st_blksize
        self._quarter = size // 4 // block * block
        self._block = block
        self._unchecked = 0  # bytes written since the last check of the file's size
        self.lost = LostOutput()
        self._noted = 0  # lost bytes that a line of the log reports

    def append(self, piece: bytes) -> None:
        """Append to the log. What cannot be written is counted in `lost`."""
        rest = piece
        while rest:
            try:
                if missing := self.lost.bytes - self._noted:
                    note = f"\n[trainyard: {missing} bytes of output are missing here: {self.lost.reason}]\n"
                    os.write(self.fd, note.encode())
                    self._noted = self.lost.bytes
                rest = rest[os.write(self.fd, rest) :]
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._release_middle():
                    self.lost.add(rest, error)
                    break
        self._unchecked += len(piece)
        if self._quarter and self._unchecked >= self._quarter:
            self._unchecked = 0
            try:
                self._punch_middle()
            except OSError:
                self._quarter = 0  # this file system does not support holes

    def _release_middle(self) -> bool:
        """Reduce the log to about three eighths of its size. Returns whether that has released disk space."""
        before = os.fstat(self.fd)
        quarter = before.st_size // 8
        if self._quarter:
            quarter = min(quarter, self._quarter)
        self._quarter = quarter // self._block * self._block
        try:
            if self._quarter:
                self._punch_middle()
        except OSError:
            self._quarter = 0
        return os.fstat(self.fd).st_blocks < before.st_blocks

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
