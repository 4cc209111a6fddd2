"""Whether the program of a pod makes progress, and whether it is alive: for pods with the annotation PROGRESS_DEADLINE.

Rules:
- Signs of life are a step, output, and a write to a file by a process of the pod, wherever the file lies. What a
  process writes is in /proc/PID/io, with what the children that it has waited for have written: a pass costs one small
  file for each process of such a pod, and touches none of the files, whose disk may not answer.
- Wakeups of a thread are writes, too, of at most eight bytes (eventfd, a pipe to itself): they are no sign of life.
- Silence is measured by the monotonic clock. A pass that comes late counts as a sign of life: this process was stopped.
- A program that maps a file into memory is seen to write where the file has a disk, and not on tmpfs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from trainyard.node.kubelet.api.pod_logs import open_log
from trainyard.node.kubelet.usage.process_table import NOTHING_WRITTEN, Written, read_io
from trainyard.objects.no_progress import Activity, NoProgress

LATE_SECONDS = 10.0  # between two passes, of which one comes every two seconds
_CLOCK_DRIFT = 1.0  # seconds


class LifeSigns:
    """The signs of life of one pod. `deadline`: in seconds; `at`: monotonic, `now`: Unix time of its start."""

    def __init__(self, deadline: float, at: float, now: float, written: Callable[[int], Written] = read_io) -> None:
        self._deadline, self._written = deadline, written
        self._processes: dict[int, Written] = {}
        self._logs: dict[Path, tuple[int, int]] = {}  # size and mtime_ns
        self.no_progress: NoProgress | None = None
        self.restart(at, now)

    def restart(self, at: float, now: float) -> None:
        """A container starts: what was before does not count."""
        self._step: float | None = None
        self._started = now
        self._step_time = 0.0  # Unix time of the last step
        self._step_at = self._alive_at = self._looked_at = at
        self._alive_time = now

    def look(
        self,
        pids: Iterable[int],
        logs: Iterable[Path],
        step: tuple[float, float] | None,
        activity: Activity,
        at: float,
        now: float,
    ) -> bool:
        """Look at the processes and logs. `step`: the last one that the program has reported, and its Unix time;
        `activity`: of the processes. Returns whether `no_progress` is another one."""
        is_late, self._looked_at = at - self._looked_at > LATE_SECONDS, at
        has_stepped = step is not None and self._is_new(*step)
        if has_stepped and step is not None:
            self._step, self._step_time = step
            self._step_at = at
        output_time = self._output_time(logs, now)
        has_written = self._has_written(pids)
        if output_time or has_written or has_stepped or is_late:
            self._alive_at, self._alive_time = at, output_time or now
        if is_late:
            self._step_at = at
        before, self.no_progress = self.no_progress, self._judge(activity, at)
        return before is not self.no_progress

    def _is_new(self, step: float, step_time: float) -> bool:
        """Not one of an earlier run. The time of the same step differs by the drift of two clocks from pass to pass."""
        return step_time > self._started and (step != self._step or step_time > self._step_time + _CLOCK_DRIFT)

    def _judge(self, activity: Activity, at: float) -> NoProgress | None:
        is_silent = at - self._alive_at >= self._deadline
        is_overdue = is_silent if self._step is None else at - self._step_at >= self._deadline
        if not is_overdue:
            return None
        state = NoProgress(self._alive_time, is_silent, self._step, activity)
        last = self.no_progress
        # The time of its last sign while it is not silent, and what it does, change from pass to pass: no more writes.
        lasting = is_silent, self._step, state.stopped
        is_same = last is not None and lasting == (last.silent, last.step, last.stopped)
        return last if is_same else state

    def _has_written(self, pids: Iterable[int]) -> bool:
        processes: dict[int, Written] = {}
        has_written = False
        for pid in pids:
            try:
                processes[pid] = written = self._written(pid)
            except (OSError, KeyError, ValueError):
                continue
            has_written |= written.wrote_since(self._processes.get(pid, NOTHING_WRITTEN))
        self._processes = processes
        return has_written

    def _output_time(self, logs: Iterable[Path], now: float) -> float:
        """When the last output was written, if there is some since the last pass; else 0."""
        newest = 0.0
        for path in logs:
            try:
                fd = open_log(path)
            except OSError:
                continue
            try:
                entry = os.fstat(fd)
            finally:
                os.close(fd)
            if (entry.st_size, entry.st_mtime_ns) != self._logs.get(path):
                self._logs[path] = entry.st_size, entry.st_mtime_ns
                newest = max(newest, entry.st_mtime)
        return min(newest, now)
