"""Reading a log file whose middle may have been left out: a hole, which reads as zeros and takes no place on the disk.

The node makes the hole while a program prints more than is kept (node/hub/log_file.py); a line behind it says so.
Files are opened without a buffer (`buffering=0`): a buffer cannot look for holes."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO

PIECE = 1 << 16
_END, _DATA, _HOLE = 2, 3, 4  # os.SEEK_END, SEEK_DATA and SEEK_HOLE


def read_piece(file: FileIO, at: int) -> tuple[bytes, int]:
    """At most PIECE bytes from `at` on, and where to read on: b"" at the end. The hole is skipped. Raises OSError."""
    while piece := _read(file, at, PIECE):
        if b"\0" not in piece:
            return piece, at + len(piece)
        begin = file.seek(at, _HOLE)  # of a file without one: its end
        if begin > at:
            piece = piece[: begin - at]
            return piece, at + len(piece)
        at = _data_from(file, at)
    return b"", at


def pieces(file: FileIO) -> Iterator[bytes]:
    """All of the log. Raises OSError."""
    piece, at = read_piece(file, 0)
    while piece:
        yield piece
        piece, at = read_piece(file, at)


def hole(file: FileIO) -> tuple[int, int] | None:
    """Where the part that is left out begins and ends, in bytes; None when nothing is. Raises OSError."""
    size = file.seek(0, _END)
    begin = file.seek(0, _HOLE) if size else 0
    return (begin, _data_from(file, begin)) if begin < size else None


def tail_begin(file: FileIO, lines: int) -> int:
    """Where the last `lines` lines begin, reading backwards. A last line without an end counts. Raises OSError."""
    end = at = file.seek(0, _END)
    if lines == 0 or end == 0:
        return end
    wanted = lines + 1 if _read(file, end - 1, 1) == b"\n" else lines
    left_out = hole(file) or (0, 0)
    while at > 0:
        if left_out[0] < at <= left_out[1]:
            at = left_out[0]
        size = min(PIECE, at)
        at -= size
        piece = _read(file, at, size)
        found = piece.count(b"\n")
        if found >= wanted:
            for _ in range(found - wanted):
                piece = piece[piece.index(b"\n") + 1 :]
            return at + size - (len(piece) - piece.index(b"\n") - 1)
        wanted -= found
    return 0


def disk_size(size: int, blocks: int) -> int:
    """Bytes that a file takes of the disk, without its hole: of st_size and st_blocks (of 512 bytes)."""
    return min(size, blocks * 512) if blocks else size


def _read(file: FileIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size) or b""


def _data_from(file: FileIO, at: int) -> int:
    try:
        return file.seek(at, _DATA)
    except OSError:  # ENXIO: there is nothing but the hole from here on
        return file.seek(0, _END)
