"""The log of one run, kept small while its program runs: its beginning and its end stay, the middle is given back to
the disk as a hole in the file, with a line behind it that says so.

Rules:
- The container's init is the only one that writes into the file, so nothing that is printed meanwhile can be lost.
- Offsets stay what they were: whoever follows the log reads on where it was. Readers skip the hole (objects/log_files).
- A file system that cannot make holes keeps the whole log while the program runs."""

from __future__ import annotations

import contextlib
import fcntl
import os

from . import calls  # relative: see the package's docstring

_LONGEST_LINE = 1 << 16  # the note ends where a line does, if one does within so many bytes


class LogFile:
    """`size`: bytes that the log takes of the disk at most, about; 0 for no bound. The first quarter stays, and at
    least the last half. `fd` is opened for reading and appending."""

    def __init__(self, fd: int, size: int = 0) -> None:
        self.fd = fd
        block = os.fstat(fd).st_blksize
        self._quarter = size // 4 // block * block
        self._block = block
        self._unseen = 0  # bytes written since the size of the file was looked at

    def append(self, piece: bytes) -> None:
        """A full disk costs lines, and no program waits for it."""
        with contextlib.suppress(OSError):
            rest = piece
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        self._unseen += len(piece)
        if self._quarter and self._unseen >= self._quarter:
            self._unseen = 0
            try:
                self._leave_out_the_middle()
            except OSError:
                self._quarter = 0  # this file system makes no holes

    def _leave_out_the_middle(self) -> None:
        size = os.fstat(self.fd).st_size
        begin, end = self._quarter, (size - 2 * self._quarter) // self._block * self._block
        if size <= 4 * self._quarter:
            return
        calls.punch_hole(self.fd, begin, end - begin)
        note = f"[trainyard: {end - begin} bytes of this log are left out here to keep it small]".encode()
        text = os.pread(self.fd, _LONGEST_LINE, end)
        line_end = text.find(b"\n", len(note))
        note = note.ljust(line_end) if line_end >= 0 else note + b"\n"
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags & ~os.O_APPEND)  # with it pwrite appends, too
        try:
            os.pwrite(self.fd, b"\n", begin - 1)
            os.pwrite(self.fd, note, end)
        finally:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags)

    def close(self) -> None:
        os.close(self.fd)
