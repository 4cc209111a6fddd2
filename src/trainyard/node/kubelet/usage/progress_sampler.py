"""The progress of all pods of a node: when it is read, and what is reported of it on the pods themselves.

A pass takes BUDGET seconds at most; the pods that were not read are the first of the next one."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from trainyard.node.kubelet.usage.life_signs import LifeSigns
from trainyard.node.kubelet.usage.metric_recorder import MetricRecorder
from trainyard.node.kubelet.usage.progress import ProgressReader
from trainyard.objects.no_progress import Activity, NoProgress, pod_activity
from trainyard.objects.usage import REPORT_SECONDS, Progress

BUDGET = 0.02  # seconds of reading in one pass
LAST_READING_SECONDS = 5.0  # for which the status of a pod's end waits: its disk may not answer


class ProgressFiles(NamedTuple):
    """Where a container writes its progress: its log file and, for the other fields, see ProgressReader. `deadline`: of
    the pod's progress in seconds, None without one (life_signs.py). `is_reported`: the pod has REPORT_PROGRESS."""

    folder: Path
    log: Path
    has_patterns: bool = True
    recorder: MetricRecorder | None = None
    deadline: float | None = None
    is_reported: bool = False


class _Report(msgspec.Struct):
    """What the annotation PROGRESS of a pod says. `at`: since when, monotonic; `last_reading`: of the pod's end."""

    progress: Progress | None = None
    at: float = -math.inf
    last_reading: asyncio.Future[Progress | None] | None = None


class _Pod(msgspec.Struct):
    reader: ProgressReader
    logs: dict[str, Path] = {}  # by run
    last: Progress | None = None
    read_at: float = 0.0
    life_signs: LifeSigns | None = None

    def last_step(self) -> tuple[float, float] | None:
        """The last step and its Unix time; None before the first."""
        if self.last is None or self.last.step_time is None or "step" not in self.last.values:
            return None
        return self.last.values["step"], self.last.step_time


class ProgressSampler:
    """The progress of all pods with a container that runs. A run is uid/container/number. `now`: the Unix time."""

    def __init__(self, clock: Callable[[], float], now: Callable[[], float] = time.time) -> None:
        self._clock, self._now = clock, now
        self._pods: dict[str, _Pod] = {}  # by uid
        self._reports: dict[str, _Report] = {}  # by uid, of the pods with REPORT_PROGRESS

    def container_starts(self, run: str, files: ProgressFiles) -> None:
        """A container is about to run: what it writes from now on is read."""
        uid = run.partition("/")[0]
        if uid not in self._pods:
            self._pods[uid] = _Pod(ProgressReader(files.folder, files.has_patterns, files.recorder))
        pod = self._pods[uid]
        pod.logs[run] = files.log
        if files.is_reported:
            self._reports.setdefault(uid, _Report())
        if pod.life_signs is not None:
            pod.life_signs.restart(self._clock(), self._now())
        elif files.deadline is not None:
            pod.life_signs = LifeSigns(files.deadline, self._clock(), self._now())

    def container_ended(self, run: str) -> None:
        """A container has ended; the progress of its pod is kept as long as another one runs. What its program has
        reported last is recorded in a thread."""
        uid = run.partition("/")[0]
        if pod := self._pods.get(uid):
            logs = list(pod.logs.values())
            pod.logs.pop(run, None)
            if not pod.logs:
                del self._pods[uid]
                report = self._reports.get(uid)
                if read := pod.reader.prepare_end(is_reported=report is not None):
                    reading = asyncio.get_running_loop().run_in_executor(None, read, logs, self._clock(), self._now())
                    if report is not None:
                        report.last_reading = reading

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._reports.pop(uid, None)

    def due_reports(self) -> list[str]:
        """The uids of the pods whose annotation PROGRESS is to be written."""
        due, at = [], self._clock()
        for uid, report in self._reports.items():
            progress = self.of_pod(uid)
            is_new = progress is not None and (report.progress is None or progress.time != report.progress.time)
            if is_new and at - report.at >= REPORT_SECONDS:
                report.progress, report.at = progress, at
                due.append(uid)
        return due

    async def report(self, uid: str) -> Progress | None:
        """What the annotation PROGRESS of a pod is to say; None for nothing. At the pod's end it waits for the last
        reading, LAST_READING_SECONDS at most."""
        report = self._reports.get(uid)
        if report is None:
            return None
        if (reading := report.last_reading) is not None:
            report.last_reading = None
            await asyncio.wait({reading}, timeout=LAST_READING_SECONDS)
            report.progress = (reading.result() if reading.done() else None) or report.progress
        return report.progress

    def of_pod(self, uid: str) -> Progress | None:
        """The progress that was last read; None without any."""
        pod = self._pods.get(uid)
        return pod.last if pod else None

    def no_progress(self, uid: str) -> NoProgress | None:
        """What a pod with a deadline has missed; None if it has not, or has none."""
        pod = self._pods.get(uid)
        return pod.life_signs.no_progress if pod and pod.life_signs else None

    def look_for_life(self) -> Callable[[Mapping[str, Iterable[int]], Mapping[str, Activity]], list[str]]:
        """A function that looks at all pods with a deadline, for a thread: from the pids of each run, and what they do,
        it returns the uids of those whose `no_progress` has changed."""
        pods = [
            (uid, pod, signs, dict(pod.logs))
            for uid, pod in self._pods.items()
            if (signs := pod.life_signs) is not None
        ]

        def look(pids: Mapping[str, Iterable[int]], activities: Mapping[str, Activity]) -> list[str]:
            changed = []
            for uid, pod, signs, logs in pods:
                members = [pid for run in logs for pid in pids.get(run, ())]
                activity = pod_activity([activities.get(run, "") for run in logs])
                if signs.look(members, logs.values(), pod.last_step(), activity, self._clock(), self._now()):
                    changed.append(uid)
            return changed

        return look

    def read_all(self, measured: Mapping[str, Mapping[str, float]] = MappingProxyType({})) -> Callable[[], None]:
        """A function that reads what is new, for a thread: the pods that were read longest ago first, for at most
        BUDGET seconds. It also keeps what the node has `measured`: values by name, by uid."""
        pods = [(pod, list(pod.logs.values())) for pod in sorted(self._pods.values(), key=lambda pod: pod.read_at)]

        of_devices = [(self._pods[uid].reader, values) for uid, values in measured.items() if uid in self._pods]

        def read() -> None:
            begin = self._clock()
            for reader, values in of_devices:
                reader.record(values, self._now())
            for pod, logs in pods:
                at = self._clock()
                if at - begin >= BUDGET:
                    return
                pod.last, pod.read_at = pod.reader.read(logs, at, self._now()), at

        return read
