"""The progress of a program, such as its step and loss, read from what it writes.

Sources, of which the first that has a value counts for the pod:

    file      $TRAINYARD_METRICS, a file per pod: a JSON object of numbers per line, {"step": 10, "loss": 0.4}
    output    the same object as a line on stdout
    pattern   `name=value`, `name: value` or `name value` in a line of stdout, for the names in NAMES; a step or epoch
              may be `10/100`, `10 of 100` or `[10/100]`, of which the second is the total

Rules:
- A value may be NaN or infinite; a step may not. JSON has it as Python writes it (NaN), or as a string ("NaN").
- Only lines that are new since the last reading are read, at most LONGEST_READ bytes of them: the last ones.
- A line of more than LONGEST_LINE bytes is left out. Patterns take linear time: they have no nested repetitions.
- A program writes what it likes: nothing here raises for the content of a line or a file. A name has to be printable:
  half a surrogate pair cannot be encoded.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainyard.node.kubelet.api.pod_logs import open_log
from trainyard.node.kubelet.usage.metric_recorder import MetricRecorder
from trainyard.node.supervisor import safe_paths
from trainyard.objects.metric_points import NODE_SOURCE, MetricPoint
from trainyard.objects.printable import without_colours
from trainyard.objects.usage import TOTALS, Progress

METRICS_FILE = "trainyard-metrics.jsonl"  # in the pod's folder for temporary files
LONGEST_READ, LONGEST_LINE = 1 << 16, 2048  # bytes
MOST_VALUES = 32  # in one object
MOST_NAMES = 128  # of a pod, and as many more as one object has: they are in annotations, and in the status of a job
LONGEST_NAME = 64  # characters
NAMES = {"step": "step", "global_step": "step", "steps": "step", "iteration": "step", "iter": "step", "epoch": "epoch",
         "loss": "loss", "train_loss": "loss", "accuracy": "accuracy", "acc": "accuracy"}  # fmt: skip
_NUMBER = r"([-+]?(?:(?:\d[\d,]{0,20})?\.?\d{1,20}(?:[eE][-+]?\d{1,3})?|nan|inf(?:inity)?))(?!\w|\.\d)"
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"})
_COUNTERS = frozenset({"step", "epoch", *TOTALS.values()})  # names whose values are finite
_TOTAL = r"(?:(?:/| of )(\d[\d,]{0,20})(?![\w/]|\.\d))?"
_PATTERN = (  # compiled at its first use
    rf"(?<![\w-])({'|'.join(sorted(NAMES, key=len, reverse=True))})(?:['\"]? ?[=:] ?| {{1,8}})\[?{_NUMBER}{_TOTAL}"
)
_RATE_SECONDS, _RATE_STEPS = 30.0, 2  # a rate is over so many seconds, or over so many steps if they are slower
_SHORTEST_SPAN = 1.0  # seconds between steps that give a rate: with a buffered stdout many are printed at once


def parse_object(line: str) -> dict[str, float]:
    """The numbers of a JSON object; {} for a line that is none."""
    if not line.startswith("{"):
        return {}
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return _numbers(fields) if isinstance(fields, dict) else {}


def _numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, value in fields.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_name = 0 < len(name) <= LONGEST_NAME and name.isprintable()
        if is_name and (is_number or (isinstance(value, str) and value in _NOT_FINITE)):
            number = _float(name, value)
            if number is not None and len(values) < MOST_VALUES:
                values[name] = number
    return values


def _float(name: str, value: float | str) -> float | None:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if name in _COUNTERS and not math.isfinite(number) else number


def parse_pattern(line: str) -> dict[str, float]:
    """The values of known names in a line of text; of a name that occurs twice the first one."""
    values: dict[str, float] = {}
    for alias, text, total in re.findall(_PATTERN, line, re.IGNORECASE):
        name = NAMES[alias.lower()]
        number = _float(name, text.replace(",", ""))
        if number is not None and name not in values:
            values[name] = number
            if total and name in TOTALS:
                values[TOTALS[name]] = float(total.replace(",", ""))
    return values


def parse_samples(text: bytes, is_output: bool, has_patterns: bool = True) -> tuple[list[dict[str, float]], str]:
    """The values of each line that has any, and the source. `is_output`: they are lines of stdout, in which patterns
    count, too (`has_patterns`), if none of them is an object."""
    objects, patterns = [], []
    for raw in text.replace(b"\r", b"\n").split(b"\n"):
        if not raw or len(raw) > LONGEST_LINE:
            continue
        line = without_colours(raw).decode("utf-8", "replace").strip()
        if values := parse_object(line):
            objects.append(values)
        elif is_output and has_patterns and not objects and (values := parse_pattern(line)):
            patterns.append(values)
    if objects:
        return objects, "output" if is_output else "file"
    return patterns, "pattern"


def parse_lines(text: bytes, is_output: bool, has_patterns: bool = True) -> tuple[dict[str, float], str]:
    """The newest value of each name in these lines, and the source; see `parse_samples`."""
    samples, source = parse_samples(text, is_output, has_patterns)
    return {name: value for sample in samples for name, value in sample.items()}, source


def since_of(
    since: Mapping[str, float | None], sample: Mapping[str, float], step: float | None
) -> dict[str, float | None]:
    """`Progress.not_finite_since` after these values, which were reported at `step`."""
    kept = {name: first for name, first in since.items() if name not in sample or not math.isfinite(sample[name])}
    return {name: step for name, value in sample.items() if not math.isfinite(value)} | kept


class GrowingFile:
    """What has been appended to a file since the last reading. `open_file` returns a descriptor of it; `offset`: where
    the first reading begins, in bytes."""

    def __init__(self, open_file: Callable[[], int], offset: int = 0) -> None:
        self._open, self._offset = open_file, offset

    def open_now(self) -> None:
        """Open the file for the next reading, which is the last one: it may be removed before."""
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            descriptors.append(self._open())

        def open_file() -> int:
            if not descriptors:
                raise FileNotFoundError
            return descriptors.pop()

        self._open = open_file

    def read(self) -> bytes:
        """The whole lines that are new, at most the last LONGEST_READ bytes; b"" when the file cannot be opened."""
        try:
            fd = self._open()
        except OSError:
            return b""
        try:
            size = os.fstat(fd).st_size
            begin = max(self._offset if self._offset <= size else 0, size - LONGEST_READ)  # or it was written anew
            if begin == size:
                return b""
            piece = os.pread(fd, size - begin, begin)
        except OSError:
            return b""
        finally:
            os.close(fd)
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        self._offset = begin + end
        return piece[:end]


class StepRate:
    """Steps per second: over the last _RATE_SECONDS, or the last _RATE_STEPS steps that were seen if they are
    slower."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()  # (time, step)
        self._pace: float | None = None  # seconds per step when the last one was read

    def add(self, at: float, step: float) -> None:
        """A step was read at that time. One that is lower than before begins anew: the program was restarted."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
            self._pace = None
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((max(at, self._seen[-1][0]) if self._seen else at, step))
            self._trim(at)
            if len(self._seen) > 1:
                # Not up to the last reading if there are others: the steps may have ended soon after the one before.
                (begin, first), (end, last) = self._seen[0], self._seen[max(1, len(self._seen) - 2)]
                self._pace = (end - begin) / (last - first) if end - begin >= _SHORTEST_SPAN else None

    def last(self, at: float) -> tuple[float, float | None] | None:
        """The seconds since the last step, and those between the steps before it, None as long as it is not known.
        None before any."""
        return (at - self._seen[-1][0], self._pace) if self._seen else None

    def per_second(self, at: float) -> float | None:
        """The rate at that time; None as long as it is not known."""
        self._trim(at)
        if len(self._seen) < 2:
            return None
        (begin, first), (_, last) = self._seen[0], self._seen[-1]
        return (last - first) / (at - begin) if at - begin >= _SHORTEST_SPAN else None

    def _trim(self, at: float) -> None:
        while len(self._seen) > _RATE_STEPS and at - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()


class ProgressReader:
    """Reads the progress of one pod. `folder`: the pod's folder for temporary files; `has_patterns`: see
    `parse_samples`; `recorder`: keeps all values, None for none. Threads may call it at the same time."""

    def __init__(self, folder: Path, has_patterns: bool = True, recorder: MetricRecorder | None = None) -> None:
        self._has_patterns = has_patterns
        self._file = GrowingFile(lambda: safe_paths.open_file(str(folder), METRICS_FILE), _size(folder / METRICS_FILE))
        self._recorder = recorder
        self._logs: dict[Path, GrowingFile] = {}
        self._rate = StepRate()
        self._values: dict[str, float] = {}
        self._not_finite_since: dict[str, float | None] = {}  # the step by the name of a value that is not finite
        self._source = ""
        self._time: float | None = None
        self._lock = threading.Lock()

    def read(self, logs: list[Path], at: float, now: float = 0.0) -> Progress | None:
        """The progress at that time, `now` as Unix time. `logs`: the log files of the containers that run; they are not
        read while the program uses its file. None as long as nothing is known."""
        with self._lock:
            samples, source = parse_samples(self._file.read(), is_output=False)
            if not samples and self._source != "file":
                self._logs = {path: self._logs.get(path) or _log(path) for path in logs}
                for log in self._logs.values():
                    log_samples, log_source = parse_samples(log.read(), True, self._has_patterns)
                    if log_samples and not (log_source == "pattern" and self._source == "output"):
                        samples, source = samples + log_samples, log_source
            if samples:
                self._take(samples, source, now)
            if step := [sample["step"] for sample in samples if "step" in sample][-1:]:
                self._rate.add(at, *step)
            if not self._values:
                return None
            silence, pace = self._rate.last(at) or (None, None)
            return Progress(
                self._values,
                self._rate.per_second(at),
                self._source,
                self._not_finite_since,
                None if silence is None else round(now - silence, 2),
                pace,
                self._time,
            )

    def _take(self, samples: list[dict[str, float]], source: str, now: float) -> None:
        values, since = (self._values, self._not_finite_since) if source == self._source else ({}, {})
        points = []
        for reported in samples:
            has_room = len(values) < MOST_NAMES
            sample = {name: value for name, value in reported.items() if has_room or name in values}
            values = values | sample
            step = values.get("step")
            since = since_of(since, sample, step)
            points += [
                MetricPoint(name, source, round(now, 2), step, sample[name])
                for name in sample
                if name != "step" and name not in TOTALS.values()
            ]
        self._values, self._not_finite_since, self._source = values, since, source
        self._time = round(now, 2)
        if self._recorder is not None and points:
            self._recorder.add(points)

    def record(self, values: Mapping[str, float], now: float) -> None:
        """Keep what the node has measured of the pod at that Unix time."""
        with self._lock:
            if self._recorder is not None:
                points = [MetricPoint(name, NODE_SOURCE, round(now, 2), None, value) for name, value in values.items()]
                self._recorder.add(points)

    def prepare_end(self, is_reported: bool) -> Callable[[list[Path], float, float], Progress | None] | None:
        """`read` for a last time, for a thread: also when the folder is removed meanwhile. None when nothing is
        recorded or `is_reported`."""
        if self._recorder is None and not is_reported:
            return None
        self._file.open_now()
        return self.read


def _log(path: Path) -> GrowingFile:
    return GrowingFile(lambda: open_log(path))


def _size(path: Path) -> int:
    """The size of a file that an earlier run has written, 0 without one."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0
