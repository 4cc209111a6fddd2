"""PNG files with at most 256 colours, which are a third of the size of a browser's: in plain Python."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(type, data) of each chunk."""
    at = len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def rows(png: bytes) -> tuple[int, list[bytearray]]:
    """The bytes of a pixel (3, or 4 with alpha), and the unfiltered rows of a picture of 8 bits a channel."""
    header, *_ = (data for kind, data in chunks(png) if kind == b"IHDR")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in (2, 6) or interlace:
        raise ValueError(f"a PNG of depth {depth}, colour type {colour}, interlace {interlace}: not of a browser")
    size = {2: 3, 6: 4}[colour]
    data = zlib.decompress(b"".join(data for kind, data in chunks(png) if kind == b"IDAT"))
    stride, above, lines = width * size, bytearray(width * size), []
    for at in range(0, height * (stride + 1), stride + 1):
        line = bytearray(data[at + 1 : at + 1 + stride])
        unfilter(data[at], line, above, size)
        lines.append(line)
        above = line
    return size, lines


def unfilter(kind: int, line: bytearray, above: bytearray, size: int) -> None:
    """Undo a row's filter, in place (PNG, 9.2)."""
    if kind == 1:
        for at in range(size, len(line)):
            line[at] = (line[at] + line[at - size]) & 255
    elif kind == 2:
        line[:] = bytes((a + b) & 255 for a, b in zip(line, above, strict=True))
    elif kind == 3:
        for at in range(len(line)):
            left = line[at - size] if at >= size else 0
            line[at] = (line[at] + (left + above[at]) // 2) & 255
    elif kind == 4:
        for at in range(len(line)):
            left, corner = (line[at - size], above[at - size]) if at >= size else (0, 0)
            line[at] = (line[at] + paeth(left, above[at], corner)) & 255


def paeth(left: int, above: int, corner: int) -> int:
    estimate = left + above - corner
    return min((left, above, corner), key=lambda value: abs(estimate - value))


def distance(first: bytes, second: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def palette_of(counted: Counter[bytes]) -> list[bytes]:
    """At most 256 colours. Of colours that differ in the last three bits of a channel only the most frequent counts:
    otherwise the greys of text would leave no place for the rare shades of a red word."""
    chosen: dict[bytes, bytes] = {}
    frequency: Counter[bytes] = Counter()
    for colour, count in counted.most_common():
        group = bytes(channel >> 3 for channel in colour)
        chosen.setdefault(group, colour)
        frequency[group] += count
    return [chosen[group] for group, _ in frequency.most_common(COLOURS)]


def with_few_colours(png: bytes) -> bytes:
    """The picture with 256 colours of it; another colour becomes the nearest of them."""
    size, lines = rows(png)
    pixels = [[bytes(line[at : at + 3]) for at in range(0, len(line), size)] for line in lines]
    counted = Counter(pixel for line in pixels for pixel in line)
    palette = palette_of(counted)
    index = {colour: at for at, colour in enumerate(palette)}
    for colour in counted:
        if colour not in index:
            index[colour] = min(range(len(palette)), key=lambda at: distance(palette[at], colour))
    data = b"".join(b"\0" + bytes(index[pixel] for pixel in line) for line in pixels)
    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 3, 0, 0, 0)
    body = [(b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in body)
