"""The curves of a job: what its programs have reported over time, from the metrics.jsonl files of its record.

- The attempts of a replica are one curve. An attempt that goes on at a checkpoint replaces what the one before had
  reported from that step on.
- A curve with too many points is thinned out; the low and the high value of what a point stands for stay.
- The spread of a value over the replicas: its minimum, median and maximum at the steps of the leading replica. A
  replica counts from its first to its last step, where its value is finite.
"""

from __future__ import annotations

import errno
import math
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from trainyard.app.job_files import MAX_BYTES, matching_files, open_file
from trainyard.objects.metric_points import METRICS, MetricPoint, decode_points, not_finite_since, thin_out
from trainyard.objects.numbers import number_text

MAX_POINTS = 2000  # of one curve in an answer
MIXED = "not finite"  # a point that stands for several values, of which not the last one is nan or infinite
SPREAD_WORK = 20_000  # steps of the spread * replicas: a thousand replicas have 50 steps
MIN_SPREAD_POINTS = 50
KEPT_SECONDS = 60.0  # a file that nobody has asked for is dropped from memory
LEADING_ROLES = ("chief", "master", "launcher")  # the first of these reports for the whole job


class Curve(msgspec.Struct, frozen=True):
    """A series of a replica by column. `attempt`: the last one that has reported it; `time`: Unix seconds; `min` and
    `max`: the bounds of the finite values that a point stands for. Numbers that are not finite are null in JSON, and
    `not_finite` has the text of each such value, or MIXED, by the index of its point; `not_finite_since`: the step of
    the first of the last values that are not finite. Without steps, the number of a value counts as its step."""

    name: str
    replica: str
    attempt: int
    source: str
    step: list[float]
    time: list[float]
    value: list[float]
    min: list[float]
    max: list[float]
    not_finite: dict[int, str] = msgspec.field(default_factory=dict, name="notFinite")
    not_finite_since: float | None = msgspec.field(default=None, name="notFiniteSince")


class Spread(msgspec.Struct, frozen=True):
    """The spread of a value over `replicas` replicas, by column; NaN where none of them has a finite one."""

    name: str
    replicas: int
    step: list[float]
    time: list[float]
    min: list[float]
    median: list[float]
    max: list[float]


class SeriesAnswer(msgspec.Struct, frozen=True):
    """`names`: all that the job has; `sources`: where each name was read; `series`: those that were asked for;
    `corrupt`: event files that cannot be read to their end."""

    names: list[str]
    sources: dict[str, list[str]]
    series: list[Curve]
    spread: list[Spread]
    corrupt: list[str] = []


StepsAndValues = tuple[Sequence[float], Sequence[float]]
"""The rising steps of a curve, and the value at each."""

NO_SERIES = SeriesAnswer([], {}, [], [])


class Column:
    """One series in 56 bytes a point. `steps` has NaN for a value without a step."""

    __slots__ = ("counts", "highs", "is_rising", "lows", "not_finite", "source", "steps", "times", "values")

    def __init__(self) -> None:
        self.source, self.is_rising = "", True
        self.times, self.steps, self.values = array("d"), array("d"), array("d")
        self.lows, self.highs, self.counts, self.not_finite = array("d"), array("d"), array("q"), array("q")

    def append(self, point: MetricPoint) -> None:
        """Add a point."""
        low, high = point.bounds
        self.source = point.source
        self.is_rising &= point.step is not None and (not self.steps or self.steps[-1] < point.step)
        self.times.append(point.time)
        self.steps.append(math.nan if point.step is None else point.step)
        self.values.append(point.value)
        self.lows.append(low)
        self.highs.append(high)
        self.counts.append(point.count)
        self.not_finite.append(point.not_finite)

    def points(self, name: str) -> list[MetricPoint]:
        """The points again."""
        columns = (self.values, self.lows, self.highs, self.counts, self.not_finite)
        return [
            MetricPoint(name, self.source, at, None if math.isnan(step) else step, *fields)
            for at, step, *fields in zip(self.times, self.steps, *columns, strict=True)
        ]


class MetricsFile:
    """One file as far as it has been read."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.asked_at = 0.0
        self._inode = self._offset = 0

    def read(self, path: Path, root: Path) -> None:
        """Read the lines that are new, or all of a file that was replaced. A file that cannot be read, or is too large,
        has none. `root`: the log folder of the job."""
        try:
            with open_file(path, root) as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._offset:
                    self.columns, self._inode, self._offset = {}, stat.st_ino, 0
                if stat.st_size == self._offset:
                    return
                if stat.st_size - self._offset > MAX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
                file.seek(self._offset)
                text = file.read(stat.st_size - self._offset) or b""
        except OSError:
            self.columns = {}
            return
        text = text[: text.rfind(b"\n") + 1]
        self._offset += len(text)
        for point in decode_points(text):
            self.columns.setdefault(point.name, Column()).append(point)


def as_one_curve(points: Iterable[MetricPoint]) -> list[MetricPoint]:
    """The points of the attempts of a replica with rising steps: a later point replaces earlier ones of its step and of
    higher ones. If one has no step, all are numbered instead."""
    points = list(points)
    if any(point.step is None for point in points):
        number, numbered = 0, []
        for point in points:
            number += point.count
            numbered.append(msgspec.structs.replace(point, step=float(number)))
        return numbered
    curve: list[MetricPoint] = []
    for point in points:
        while curve and _step(curve[-1]) >= _step(point):
            curve.pop()
        curve.append(point)
    return curve


def _step(point: MetricPoint) -> float:
    return point.step if point.step is not None else 0.0


def steps_and_values(name: str, columns: list[Column]) -> StepsAndValues:
    """The curve of a replica, as `as_one_curve`, without the rest: a spread may be over a thousand."""
    if len(columns) == 1 and columns[0].is_rising:
        return columns[0].steps, columns[0].values
    curve = as_one_curve(point for column in columns for point in column.points(name))
    return [_step(point) for point in curve], [point.value for point in curve]


def spread_of(name: str, leading: list[MetricPoint], others: list[StepsAndValues]) -> Spread | None:
    """The spread at the steps of `leading`; None without others. All are curves with rising steps."""
    if not others:
        return None
    size = max(MIN_SPREAD_POINTS, SPREAD_WORK // (1 + len(others)))
    grid = thin_out(leading, size)
    at_step: list[list[float]] = [[point.value] if math.isfinite(point.value) else [] for point in grid]
    for steps, reported in others:
        for values, point in zip(at_step, grid, strict=True):
            position = bisect_right(steps, _step(point))
            is_present = position and (position < len(steps) or steps[-1] == point.step)
            if is_present and math.isfinite(reported[position - 1]):
                values.append(reported[position - 1])
    return Spread(
        name,
        1 + len(others),
        [_step(point) for point in grid],
        [point.time for point in grid],
        [min(values, default=math.nan) for values in at_step],
        [median(values) if values else math.nan for values in at_step],
        [max(values, default=math.nan) for values in at_step],
    )


def curve_of(replica: str, attempt: int, points: list[MetricPoint], size: int) -> Curve:
    """At most `size` points of a curve."""
    thin = thin_out(points, size)
    return Curve(
        points[-1].name,
        replica,
        attempt,
        points[-1].source,
        [_step(point) for point in thin],
        [point.time for point in thin],
        [point.value for point in thin],
        [point.bounds[0] for point in thin],
        [point.bounds[1] for point in thin],
        {index: _mark(point) for index, point in enumerate(thin) if point.not_finite_count},
        not_finite_since(points),
    )


def _mark(point: MetricPoint) -> str:
    return MIXED if math.isfinite(point.value) else number_text(point.value)


def leading_first(replica: str) -> tuple[int, str, int]:
    """Sort key of replicas, `role-index`: the one that reports for the job comes first."""
    role, _, index = replica.rpartition("-")
    position = LEADING_ROLES.index(role) if role in LEADING_ROLES else len(LEADING_ROLES)
    return position, role, int(index) if index.isdecimal() else 0


class SeriesReader:
    """Reads the curves of jobs. What was read of a file is kept while somebody looks. Used by one thread at a time."""

    def __init__(self) -> None:
        self._files: dict[Path, MetricsFile] = {}

    def read(
        self,
        logs: Path,
        names: list[str],
        replicas: list[str],
        size: int = MAX_POINTS,
        events: Mapping[str, list[MetricPoint]] | None = None,
    ) -> SeriesAnswer:
        """The curves of these names (all, if there are none) of these replicas (the leading one of each name, if there
        are none), and their spread. `logs`: the log folder of the job; `events`: series of event files, which belong to
        no replica; a name that the programs have reported, too, is left out. Reads files."""
        attempts = self._attempts(logs)
        all_names = sorted({name for files in attempts.values() for _, file in files for name in file.columns})
        sources: dict[str, list[str]] = {}
        series, spread = [], []
        for name in all_names:
            by_replica = {
                replica: kept
                for replica, files in attempts.items()
                if (kept := [(attempt, file.columns[name]) for attempt, file in files if name in file.columns])
            }
            sources[name] = sorted({column.source for kept in by_replica.values() for _, column in kept})
            if names and name not in names:
                continue
            columns = {replica: [column for _, column in kept] for replica, kept in by_replica.items()}
            leading = next(iter(columns))
            curves = {
                replica: as_one_curve(point for column in columns[replica] for point in column.points(name))
                for replica in {leading, *replicas} & columns.keys()
            }
            for replica in replicas or [leading]:
                if replica in curves:
                    series.append(curve_of(replica, by_replica[replica][-1][0], curves[replica], size))
            others = [steps_and_values(name, columns[replica]) for replica in columns if replica != leading]
            if (spread_over := spread_of(name, curves[leading], others)) is not None:
                spread.append(spread_over)
        for name, points in sorted((events or {}).items()):
            if name not in sources:
                sources[name] = [points[-1].source]
                if (not names or name in names) and not replicas:
                    series.append(curve_of("", 0, as_one_curve(points), size))
        return SeriesAnswer(sorted(sources), sources, series, spread)

    def last_values(self, logs: Path, events: Mapping[str, list[MetricPoint]]) -> dict[str, float]:
        """The last value of each name, of the leading replica of that name. `events`: as in `read`. Reads files."""
        values: dict[str, float] = {}
        for files in self._attempts(logs).values():
            own = {name: column.values[-1] for _, file in files for name, column in file.columns.items()}
            values = own | values
        return {name: points[-1].value for name, points in events.items()} | values

    def _attempts(self, logs: Path) -> dict[str, list[tuple[int, MetricsFile]]]:
        """By replica, the leading one first: its attempts in their order."""
        now = time.monotonic()
        attempts: dict[str, list[tuple[int, MetricsFile]]] = {}
        for path in matching_files(logs, f"*/attempt-*/{METRICS}"):
            file = self._files.setdefault(path, MetricsFile())
            file.asked_at = now
            file.read(path, logs)
            number = path.parent.name.split("-")[1]
            attempts.setdefault(path.parts[-3], []).append((int(number) if number.isdecimal() else 0, file))
        self._files = {path: file for path, file in self._files.items() if now - file.asked_at < KEPT_SECONDS}
        return {
            replica: sorted(attempts[replica], key=lambda attempt: attempt[0])
            for replica in sorted(attempts, key=leading_first)
        }
