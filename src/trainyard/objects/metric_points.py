"""The values that a program has reported over time, as points of series in a file of JSON lines.

A line is one point: `[name, source, time, step, value]`, or `[name, source, time, step, value, low, high, count]` of a
point that stands for `count` reported values. A reader skips lines that it cannot parse: the last one may be cut off.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

METRICS = "metrics.jsonl"
"""The name of the file in the log folder of a pod."""
CHIEF_POINTS, REPLICA_POINTS = 4096, 256
"""Points kept of one series: of the first replica of a role, and of each other one."""


class MetricPoint(msgspec.Struct, frozen=True, array_like=True):
    """`source`: file, output, pattern or the path of event files. `time`: Unix seconds; `step`: None if the program has
    reported none. `low`, `high`: of all `count` values, None for a single one; time, step and value are the last."""

    name: str
    source: str
    time: float
    step: float | None
    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        return (self.value if self.low is None else self.low), (self.value if self.high is None else self.high)


_DECODER = msgspec.json.Decoder(MetricPoint)


def encode_points(points: Iterable[MetricPoint]) -> bytes:
    """The points as lines."""
    return b"".join(
        msgspec.json.encode(point if point.count > 1 else msgspec.structs.astuple(point)[:5]) + b"\n"
        for point in points
    )


def decode_points(text: bytes) -> list[MetricPoint]:
    """The points of these lines."""
    try:
        return _DECODER.decode_lines(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [point for line in text.split(b"\n") if (point := _decode(line)) is not None]


def _decode(line: bytes) -> MetricPoint | None:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def thin_out(points: list[MetricPoint], limit: int) -> list[MetricPoint]:
    """At most `limit` (>= 1) points for the points of one series: neighbours are merged, such that each result stands
    for about the same number of values. No low and no high value is lost."""
    size = 1
    while len(points) > limit:
        size *= 2
        points = _merge_neighbours(points, size)
    return points


def _merge_neighbours(points: list[MetricPoint], size: int) -> list[MetricPoint]:
    """Merge neighbours as long as the result stands for at most `size` values."""
    merged: list[MetricPoint] = []
    for point in points:
        if merged and merged[-1].count + point.count <= size:
            last = merged[-1]
            (low, high), (other_low, other_high) = last.bounds, point.bounds
            merged[-1] = MetricPoint(
                point.name,
                point.source,
                point.time,
                point.step,
                point.value,
                min(low, other_low),
                max(high, other_high),
                last.count + point.count,
            )
        else:
            merged.append(point)
    return merged
