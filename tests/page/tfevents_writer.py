"""Event files as tensorflow writes them: TFRecord, with event.proto, summary.proto and tensor.proto."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(number: int, value: bytes | int | float, double: bool = False) -> bytes:
    """A field of protobuf: bytes, a varint, or a fixed32 or fixed64 number."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | (1 if double else 5)) + struct.pack("<d" if double else "<f", value)


def event(step: int, time: float, *values: bytes) -> bytes:
    summary = b"".join(field(1, value) for value in values)
    return field(1, time, double=True) + field(2, step) + field(5, summary)


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + field(2, float(value))


def tensor(tag: str, dtype: int, content: bytes, *sizes: int) -> bytes:
    """`content`: the field with the values; `sizes`: the dimensions."""
    shape = b"".join(field(2, field(1, size)) for size in sizes)
    metadata = field(1, field(1, b"scalars"))
    return field(1, tag.encode()) + field(8, field(1, dtype) + field(2, shape) + content) + field(9, metadata)


def frame(record: bytes) -> bytes:
    """A record of TFRecord; the checksums are left out, as readers of scalars do not compare them."""
    return struct.pack("<Q", len(record)) + bytes(4) + record + bytes(4)


VERSION = frame(field(1, 1.0, double=True) + field(3, b"brain.Event:2"))
