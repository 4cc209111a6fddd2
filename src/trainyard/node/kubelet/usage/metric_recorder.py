"""Keeps what the program of one pod reports in the file metrics.jsonl of the pod's log folder (metric_points.py).

Rules:
- Lines are appended, so a kill loses nothing that was written. A file with too many points of a series is written anew
  with half of them under another name, and renamed.
- An error of the disk loses the points at hand and nothing else.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from trainyard.node.supervisor import safe_paths
from trainyard.objects import Json
from trainyard.objects.labels import index_of
from trainyard.objects.metric_points import (
    CHIEF_POINTS,
    METRICS,
    REPLICA_POINTS,
    MetricPoint,
    decode_points,
    encode_points,
    thin_out,
)

MAX_BYTES = 64 << 20  # read of a file; one that the node has written has fewer
MAX_SERIES = 64  # of one pod; a program may make up names for ever
_NEW = f".{METRICS}.new"
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC

_Key = tuple[str, str]  # name and source of a series


class MetricRecorder:
    """`folder`: the pod's log folder, which may not exist yet; `limit`: points of one series in the file."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._counts: Counter[_Key] | None = None  # points in the file by series; None: it must be read

    def add(self, points: list[MetricPoint]) -> None:
        """Append points. Never raises OSError."""
        try:
            self._append(points)
        except OSError:
            self._counts = None  # the last line may be cut off

    def _append(self, points: list[MetricPoint]) -> None:
        counts, text = self._counts, b""
        if counts is None:
            before = self._read()
            counts = self._counts = Counter(_key(point) for point in decode_points(before))
            text = b"\n" if before and not before.endswith(b"\n") else b""
        kept = []
        for point in points:
            if _key(point) in counts or len(counts) < MAX_SERIES:
                counts[_key(point)] += 1
                kept.append(point)
        parent = safe_paths.open_directory(str(self._folder))
        try:
            fd = os.open(METRICS, _APPEND | os.O_NOFOLLOW, 0o600, dir_fd=parent)
        finally:
            os.close(parent)
        with os.fdopen(fd, "ab", buffering=0) as file:
            file.write(text + encode_points(kept))
        if max(counts.values(), default=0) > self._limit:
            self._compact()

    def _compact(self) -> None:
        series: dict[_Key, list[MetricPoint]] = {}
        for point in decode_points(self._read()):
            series.setdefault(_key(point), []).append(point)
        for key, points in series.items():
            if len(points) > self._limit:
                series[key] = thin_out(points, max(1, self._limit // 2))
        with open(safe_paths.create_file(str(self._folder), _NEW), "wb") as file:
            file.write(b"".join(encode_points(points) for points in series.values()))
        (self._folder / _NEW).rename(self._folder / METRICS)
        self._counts = Counter({key: len(points) for key, points in series.items()})

    def _read(self) -> bytes:
        try:
            with open(safe_paths.open_file(str(self._folder), METRICS), "rb") as file:
                return file.read(MAX_BYTES)
        except FileNotFoundError:
            return b""


def metric_recorder(folder: Path | None, pod: Json) -> MetricRecorder | None:
    """The recorder of a pod; None without a log folder that outlives it. The first replica of a role keeps more."""
    if folder is None:
        return None
    return MetricRecorder(folder, CHIEF_POINTS if index_of(pod) == "0" else REPLICA_POINTS)


def _key(point: MetricPoint) -> _Key:
    return point.name, point.source
