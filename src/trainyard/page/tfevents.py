"""Scalars of TensorBoard's event files, without TensorBoard: frames of TFRecord that hold an Event of protobuf.

A frame is the length (8 bytes, little endian), its checksum (4), the event, and its checksum (4). Checksums are not
compared: CRC-32C is not in the standard library. Instead:
- A length that no event has ends the file for good.
- A frame that is not whole is read again later: the file grows.
- A large event (an image, a graph) is skipped by its length, and an event that cannot be parsed has no scalars.

Scalars are `simple_value`, or tensors of one number, as `float_val` and the like or as `tensor_content`.
"""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainyard.app.job_files import open_file

MAX_EVENT = 1 << 30  # bytes; protobuf allows 2 GiB, TensorBoard writes less
MAX_PARSED = 1 << 20  # bytes of an event that may hold scalars
MAX_TAG = 200  # characters
_HEADER, _FOOTER = 12, 4  # bytes
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf
# The numbers of the fields that are read, as tensorflow/core/util/event.proto and framework/{summary,tensor,
# tensor_shape}.proto have them.
_EVENT_WALL_TIME, _EVENT_STEP, _EVENT_SUMMARY = 1, 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE_VALUE, _VALUE_TENSOR = 1, 2, 8
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT = 1, 2, 4
_TENSOR_FLOAT_VAL, _TENSOR_DOUBLE_VAL, _TENSOR_INT_VAL, _TENSOR_INT64_VAL = 5, 6, 7, 10
_SHAPE_DIM, _DIM_SIZE = 2, 1
_DT_FLOAT, _DT_DOUBLE, _DT_INT32, _DT_INT64 = 1, 2, 3, 9  # framework/types.proto
# By the dtype of a tensor: its format in tensor_content, and the number of its field with values.
_DTYPES = {
    _DT_FLOAT: ("<f", _TENSOR_FLOAT_VAL),
    _DT_DOUBLE: ("<d", _TENSOR_DOUBLE_VAL),
    _DT_INT32: ("<i", _TENSOR_INT_VAL),
    _DT_INT64: ("<q", _TENSOR_INT64_VAL),
}


class Scalar(NamedTuple):
    """`time`: Unix seconds, finite; the value need not be."""

    tag: str
    step: int
    time: float
    value: float


class EventFile:
    """A file as far as it has been read. A file that was replaced or made shorter is read from its beginning."""

    def __init__(self) -> None:
        self.is_corrupt = False
        self._inode = self._offset = 0

    def read(self, path: Path, budget: int) -> tuple[list[Scalar], int, bool]:
        """The scalars that are new, the number of bytes read for them (little more than `budget`), and whether the file
        was replaced. A file that cannot be read has none."""
        scalars: list[Scalar] = []
        read, is_new = 0, False
        try:
            with io.BufferedReader(open_file(path, path.parent)) as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._offset:
                    is_new, self._inode, self._offset, self.is_corrupt = self._offset > 0, stat.st_ino, 0, False
                while not self.is_corrupt and read < budget and self._offset + _HEADER + _FOOTER <= stat.st_size:
                    file.seek(self._offset)
                    [length] = struct.unpack("<Q", file.read(_HEADER)[:8])
                    end = self._offset + _HEADER + length + _FOOTER
                    self.is_corrupt = length > MAX_EVENT
                    if end > stat.st_size:
                        break
                    if length <= MAX_PARSED:
                        scalars += event_scalars(file.read(length))
                        read += length
                    read += _HEADER + _FOOTER
                    self._offset = end
        except (OSError, struct.error):  # it was made shorter meanwhile
            pass
        return scalars, read, is_new


def event_scalars(event: bytes) -> list[Scalar]:
    """The scalars of one Event; [] if it has none, or cannot be parsed."""
    try:
        return list(_scalars(event))
    except (ValueError, struct.error):
        return []


def _scalars(event: bytes) -> Iterator[Scalar]:
    time, step, summaries = 0.0, 0, []
    for number, wire, value in _fields(event):
        if (number, wire) == (_EVENT_WALL_TIME, _FIXED64):
            [time] = struct.unpack("<d", value)
        elif (number, wire) == (_EVENT_STEP, _VARINT):
            step = int(value) - (1 << 64 if int(value) >> 63 else 0)
        elif (number, wire) == (_EVENT_SUMMARY, _BYTES):
            summaries.append(value)
    for summary in summaries:
        for number, wire, value in _fields(summary):
            if (number, wire) == (_SUMMARY_VALUE, _BYTES):
                tag, scalar = _tag_and_value(value)
                if tag and scalar is not None and math.isfinite(time):
                    yield Scalar(tag, step, time, scalar)


def _tag_and_value(summary_value: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, wire, value in _fields(summary_value):
        if (number, wire) == (_VALUE_TAG, _BYTES):
            tag = value.decode("utf-8", "replace")[:MAX_TAG]
        elif (number, wire) == (_VALUE_SIMPLE_VALUE, _FIXED32):
            [scalar] = struct.unpack("<f", value)
        elif (number, wire) == (_VALUE_TENSOR, _BYTES):
            scalar = _tensor_scalar(value)
    return tag, scalar


def _tensor_scalar(tensor: bytes) -> float | None:
    """The number of a tensor with one; None for another tensor."""
    dtype, contents = 0, {}
    for number, wire, value in _fields(tensor):
        if (number, wire) == (_TENSOR_DTYPE, _VARINT):
            dtype = int(value)
        elif number == _TENSOR_SHAPE and not _has_one_element(value):
            return None
        elif number > _TENSOR_SHAPE:
            contents[number] = value
    if dtype not in _DTYPES:
        return None
    layout, values_field = _DTYPES[dtype]
    content = contents.get(_TENSOR_CONTENT) or contents.get(values_field)
    if isinstance(content, bytes) and len(content) == struct.calcsize(layout):
        return float(struct.unpack(layout, content)[0])
    if dtype not in (_DT_INT32, _DT_INT64) or content is None:
        return None
    integer = _varint(content, 0)[0] if isinstance(content, bytes) else content  # packed, or not
    return float(integer - (1 << 64 if integer >> 63 else 0))


def _has_one_element(shape: int | bytes) -> bool:
    """Whether a TensorShapeProto is that of one number. No product of what a file says: it could be of any length."""
    for number, _, dimension in _fields(shape) if isinstance(shape, bytes) else ():
        if number == _SHAPE_DIM and isinstance(dimension, bytes):
            sizes = (size for field, wire, size in _fields(dimension) if (field, wire) == (_DIM_SIZE, _VARINT))
            if next(sizes, 0) != 1:
                return False
    return True


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field; the value is an int of a varint, else bytes. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > len(message):
            raise ValueError("a field is cut off")
        yield key >> 3, wire, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A varint of at most ten bytes, and where the next field begins. Raises ValueError."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), message[at : at + 10], strict=False):
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a varint is cut off")
