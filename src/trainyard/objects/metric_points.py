"""The values that a program has reported over time, as points of series in a file of JSON lines.

A line is one point: `[name, source, time, step, value]`, or `[name, source, time, step, value, low, high, count]` of a
point that stands for `count` reported values, followed by the number of those that are not finite, if there are any.
Numbers that are not finite are strings (objects/numbers.py). A reader skips lines that it cannot parse: the last one
may be cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from trainyard.objects.numbers import json_number

NODE_SOURCE = "node"
"""The source of what the node itself measures, without steps: the use of the pod's GPUs."""
GPU_UTILIZATION, GPU_MEMORY = "gpu_utilization", "gpu_memory"  # percent, the mean over the GPUs; bytes, the sum
METRICS = "metrics.jsonl"
"""The name of the file in the log folder of a pod."""
CHIEF_POINTS, REPLICA_POINTS = 4096, 256
"""Points kept of one series: of the first replica of a role, and of each other one."""


class MetricPoint(msgspec.Struct, frozen=True, array_like=True):
    """`source`: file, output, pattern or the path of event files. `time`: Unix seconds; `step`: None if the program has
    reported none. `low`, `high`: of the finite ones of `count` values, NaN without any, None for a single value; time,
    step and value are the last. `not_finite`: the number of the others of several values."""

    name: str
    source: str
    time: float
    step: float | None
    value: float
    low: float | None = None
    high: float | None = None
    count: int = 1
    not_finite: int = 0

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest finite value, NaN without any."""
        own = self.value if math.isfinite(self.value) else math.nan
        return (own if self.low is None else self.low), (own if self.high is None else self.high)

    @property
    def not_finite_count(self) -> int:
        """How many of its values are not finite."""
        return self.not_finite if self.count > 1 else int(not math.isfinite(self.value))


_DECODER = msgspec.json.Decoder(MetricPoint, strict=False)  # a string may be a number that is not finite


def encode_points(points: Iterable[MetricPoint]) -> bytes:
    """The points as lines."""
    return b"".join(_encode(point) for point in points)


def _encode(point: MetricPoint) -> bytes:
    length = 5 if point.count == 1 else 9 if point.not_finite else 8
    fields = msgspec.structs.astuple(point)[:length]
    return msgspec.json.encode([json_number(field) if type(field) is float else field for field in fields]) + b"\n"


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
    for about the same number of values. No low and no high value is lost, nor that some are not finite."""
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
                _extreme(min, low, other_low),
                _extreme(max, high, other_high),
                last.count + point.count,
                last.not_finite_count + point.not_finite_count,
            )
        else:
            merged.append(point)
    return merged


def _extreme(choose: Callable[..., float], *bounds: float) -> float:
    """The least or the greatest bound, without NaN, which stands for no finite value."""
    return choose((bound for bound in bounds if not math.isnan(bound)), default=math.nan)


def not_finite_since(curve: Sequence[MetricPoint]) -> float | None:
    """The step of the first of the last values that are not finite; None if the last point of the curve is finite."""
    since: float | None = None
    for point in reversed(curve):
        if math.isfinite(point.value):
            break
        since = point.step
        if point.not_finite_count < point.count:
            break
    return since
