"""Reading log files whose middle may be a hole of a sparse file: it reads as zero bytes and uses no disk blocks.

The node punches the hole when a container writes more than the log limit (node/supervisor/log_file.py); a line after
the hole says so. Callers open the file unbuffered (`buffering=0`): the functions here seek with SEEK_DATA and
SEEK_HOLE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import FileIO

PIECE_SIZE = 1 << 16
LEFT_OUT_PREFIX = b"\n[trainyard: "
LEFT_OUT = re.compile(
    re.escape(LEFT_OUT_PREFIX) + rb"([0-9]{1,18}) bytes are left out: they were written faster than they are shown\]\n"
)
"""What `left_out_note` writes."""
_END, _DATA, _HOLE = 2, 3, 4  # os.SEEK_END, SEEK_DATA and SEEK_HOLE


def read_piece(file: FileIO, offset: int) -> tuple[bytes, int]:
    """At most PIECE_SIZE bytes from offset `offset`, and the offset of the next read. The hole is skipped.

    The bytes are b"" at the end of the file. Raises OSError.
    """
    while piece := _read(file, offset, PIECE_SIZE):
        if b"\0" not in piece:
            return piece, offset + len(piece)
        hole_begin = file.seek(offset, _HOLE)  # the end of the file when it has no hole
        if hole_begin > offset:
            piece = piece[: hole_begin - offset]
            return piece, offset + len(piece)
        offset = _data_from(file, offset)
    return b"", offset


def pieces(file: FileIO, offset: int = 0) -> Iterator[bytes]:
    """The log from `offset` on, in pieces of at most PIECE_SIZE bytes. Raises OSError."""
    piece, at = read_piece(file, offset)
    while piece:
        yield piece
        piece, at = read_piece(file, at)


def hole(file: FileIO) -> tuple[int, int] | None:
    """The offsets in bytes of the begin and the end of the hole; None when the file has none. Raises OSError."""
    size = file.seek(0, _END)
    begin = file.seek(0, _HOLE) if size else 0
    return (begin, _data_from(file, begin)) if begin < size else None


def tail_offset(file: FileIO, lines: int, limit: int | None = None) -> int:
    """The offset in bytes at which the last `lines` lines begin. A last line without a newline counts.

    The file is read backwards, at most its last `limit` bytes: of longer lines the offset is that of their first byte.
    Raises OSError.
    """
    end = at = file.seek(0, _END)
    if lines == 0 or end == 0:
        return end
    missing = lines + 1 if _read(file, end - 1, 1) == b"\n" else lines  # newlines that are still to be read
    hole_begin, hole_end = hole(file) or (0, 0)
    first = 0 if limit is None else max(0, end - limit)
    while at > first:
        if hole_begin < at <= hole_end:
            at = hole_begin
        size = min(PIECE_SIZE, at - first)
        if size <= 0:
            break
        at -= size
        piece = _read(file, at, size)
        newlines = piece.count(b"\n")
        if newlines >= missing:
            newline = len(piece)
            for _ in range(missing):
                newline = piece.rindex(b"\n", 0, newline)
            return at + newline + 1
        missing -= newlines
    return first


def left_out_note(size: int) -> bytes:
    """The line in the place of what a follower of the newest lines does not get; it ends the line before."""
    return LEFT_OUT_PREFIX + b"%d bytes are left out: they were written faster than they are shown]\n" % size


def disk_size(size: int, blocks: int) -> int:
    """Bytes that a file uses on the disk, without its hole, from its st_size and st_blocks (blocks of 512 bytes)."""
    return min(size, blocks * 512) if blocks else size


def _read(file: FileIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size) or b""


def _data_from(file: FileIO, at: int) -> int:
    try:
        return file.seek(at, _DATA)
    except OSError:  # ENXIO: the hole extends to the end of the file
        return file.seek(0, _END)
