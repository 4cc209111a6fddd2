"""Columns of the list of jobs for which requests are made and files are read: step, loss, and the shape of the loss.

- They are a topic of their own (`progress`), which pages subscribe to while they show the list. The row of a job is not
  sent again because its step has grown.
- Of jobs that run they come from one list of PodMetrics, which all pages share; of others from the record.
- Records are read a part at each round, and that of a job that has ended once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from trainyard.app.evidence.pod_metrics import read_pod_metrics
from trainyard.app.history.records import HistoryRecord, job_folders, read_record
from trainyard.app.job_files import in_thread, matching_files
from trainyard.client import ApiClient, ApiError
from trainyard.kinds import kind_of
from trainyard.objects import Json, as_dict, labels_of, namespace_of
from trainyard.objects.labels import OWNER
from trainyard.objects.metric_points import METRICS, NODE_SOURCE, MetricPoint
from trainyard.objects.numbers import json_number
from trainyard.objects.structs import replace
from trainyard.objects.usage import MEMORY_MEASURE
from trainyard.page.job_list import ROWS_PER_FRAME, JobList, has_ended
from trainyard.page.observation import Observation
from trainyard.page.series import MetricsFile, as_one_curve, leading_first
from trainyard.views.diagnosis.brief import brief_progress
from trainyard.views.recorded import ID_LENGTH
from trainyard.views.usage_view import ReplicaUsage, by_pod, is_loss, median_step, replica_usages

PROGRESS_COLUMNS = ("uid", "step", "loss", "shape", "why")
SHAPE_POINTS = 16  # of the shape of a loss: a list of 10,000 jobs is a megabyte
KEPT_LOSSES = 128  # of a job that runs
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # the levels of a shape
NOT_FINITE = "!"
LOSSES = ("loss", "train_loss")  # names that precede others that end with "loss"

PACE = 2.0  # seconds between two readings, which is how often a Trainyard node measures
UNMEASURED_SECONDS = 30.0  # until the usage is asked for again where no Trainyard node measures
RECORDS_TIME = 0.2  # seconds of one round for the files of records
GROWING_SECONDS = 10.0  # until a record that may grow is read again
SETTLE_SECONDS = 5.0  # after the end of a job its last values may still be written
LOOKED_AT = 8  # replicas of a record, the leading ones first
JOBS_PER_STEP = 50  # worked out in one step of the event loop

Row = list[Any]
"""The values of a job, in the order of PROGRESS_COLUMNS."""


class Progress(msgspec.Struct, frozen=True):
    """The last step and loss of a job, None for one that is unknown, its losses so far, and which replicas lag."""

    step: float | None = None
    loss: float | None = None
    losses: tuple[float, ...] = ()
    why: str = ""


def _json(loss: float | None) -> float | str | None:
    return None if loss is None else json_number(loss)


def loss_name(names: Iterable[str]) -> str | None:
    """The name of the loss among those of the values that a program reports; None for none."""
    losses = sorted(filter(is_loss, names))
    return next((name for name in LOSSES if name in losses), losses[0] if losses else None)


def current_loss(usages: Iterable[ReplicaUsage]) -> float | None:
    """The loss of the leading replica of those that report one."""
    for usage in sorted(usages, key=lambda usage: leading_first(usage.replica)):
        if (name := loss_name(usage.metrics)) is not None:
            return usage.metrics[name]
    return None


def shape_of(losses: Sequence[float]) -> str:
    """The shape of a curve as at most SHAPE_POINTS digits, each the mean of a part of it: 0 is the lowest, z the
    highest, NOT_FINITE a part with a value that is not finite. "" for fewer than two values."""
    count = min(SHAPE_POINTS, len(losses))
    if count < 2:
        return ""
    bounds = [len(losses) * number // count for number in range(count + 1)]
    means = [_mean(losses[begin:end]) for begin, end in pairwise(bounds)]
    finite = [mean for mean in means if math.isfinite(mean)]
    scale = max(map(abs, finite), default=1.0) or 1.0  # the difference of two huge losses is infinite
    low, high = min(finite, default=0.0) / scale, max(finite, default=0.0) / scale
    return "".join(_digit(mean / scale, low, high) if math.isfinite(mean) else NOT_FINITE for mean in means)


def _digit(mean: float, low: float, high: float) -> str:
    return DIGITS[round((mean - low) / (high - low) * 35) if high > low else 17]


def _mean(values: Sequence[float]) -> float:
    """The mean, also of values whose sum is infinite; NaN or infinite if one of them is."""
    return sum(value / len(values) for value in values)


def merged(losses: tuple[float, ...]) -> tuple[float, ...]:
    """Fewer than KEPT_LOSSES losses: of too many the neighbours are merged."""
    while len(losses) >= KEPT_LOSSES:
        losses = tuple(_mean(losses[position : position + 2]) for position in range(0, len(losses), 2))
    return losses


def recorded_progress(logs: Path) -> Progress:
    """What the first of the replicas that have reported something, the leading one first, has reported last. `logs`:
    the log folder of the job. Reads files."""
    by_replica: dict[str, list[Path]] = {}
    for path in matching_files(logs, f"*/attempt-*/{METRICS}"):
        by_replica.setdefault(path.parts[-3], []).append(path)
    for replica in sorted(by_replica, key=leading_first)[:LOOKED_AT]:
        series: dict[str, list[MetricPoint]] = {}
        for path in sorted(by_replica[replica], key=_attempt):
            file = MetricsFile()
            file.read(path, logs)
            for name, column in file.columns.items():
                if column.source == NODE_SOURCE:
                    continue  # the program has not reported it
                series.setdefault(name, []).extend(column.points(name))
        if series:
            last = max((points[-1] for points in series.values()), key=lambda point: point.time)
            losses = tuple(point.value for point in as_one_curve(series.get(loss_name(series) or "", ())))
            return Progress(last.step, losses[-1] if losses else None, merged(losses))
    return Progress()


def _attempt(path: Path) -> int:
    number = path.parent.name.split("-")[1]
    return int(number) if number.isdecimal() else 0


class _Job(msgspec.Struct):
    """`is_measured`: a node has measured it. `is_seeded`: its record was read once. `look_at`: when the record is read
    again, monotonic."""

    progress: Progress = Progress()
    row: Row = []
    is_measured: bool = False
    is_seeded: bool = False
    look_at: float = 0.0


class ProgressReader:
    """Reads the progress of all jobs, once for all pages. `history`: the folder of the history, None for none."""

    def __init__(
        self, api: ApiClient | None, observation: Observation | None, jobs: JobList, history: Path | None
    ) -> None:
        self._api, self._observation, self._list, self._history = api, observation, jobs, history
        self._jobs: dict[str, _Job] = {}  # by uid
        self._next_usages = self._read_at = float("-inf")
        self._reading: asyncio.Task[dict[str, Row]] | None = None

    async def read(self) -> dict[str, Row]:
        """The rows of all jobs of which something is known, by uid, at most PACE seconds old. A row that has changed is
        another list."""
        now = time.monotonic()
        if self._reading is None or (self._reading.done() and now - self._read_at >= PACE):
            self._read_at, self._reading = now, asyncio.ensure_future(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> dict[str, Row]:
        if self._api is not None and self._observation is not None and time.monotonic() >= self._next_usages:
            await self._read_usages(self._api, self._observation)
        if self._history is not None and (pending := await self._pending()):
            for uid, (progress, pause) in (await in_thread(_read_records, self._history, pending)).items():
                self._recorded(uid, progress, pause)
        return {uid: job.row for uid, job in self._jobs.items() if job.row}

    def _recorded(self, uid: str, recorded: Progress, pause: float) -> None:
        job, is_final = self._jobs[uid], math.isinf(pause)
        job.is_seeded, job.look_at = True, time.monotonic() + pause
        if job.is_measured and pause == GROWING_SECONDS:  # what was measured is newer than the record
            recorded = replace(job.progress, losses=recorded.losses or job.progress.losses)
        self._take(uid, recorded)
        if is_final:
            job.progress = Progress()  # its row has all that is needed

    async def _read_usages(self, api: ApiClient, observation: Observation) -> None:
        """Take over the steps and losses of the jobs that run."""
        try:
            items, missing = await read_pod_metrics(api, observation.namespace, OWNER)
        except ApiError:
            return
        by_job: dict[str, list[Json]] = {}
        for item in items:
            by_job.setdefault(str(labels_of(item).get(OWNER)), []).append(item)
        is_measured = any(MEMORY_MEASURE in as_dict(item["metadata"].get("annotations")) for item in items)
        if missing or (items and not is_measured):
            self._next_usages = time.monotonic() + UNMEASURED_SECONDS
        for number, (uid, metrics) in enumerate(by_job.items()):
            if number % JOBS_PER_STEP == 0:
                await asyncio.sleep(0)
            if uid not in observation.view.jobs:
                continue
            job = observation.view.jobs[uid]
            usages = replica_usages(namespace_of(job), observation.view.slots(uid), by_pod(metrics))
            why = brief_progress(kind, job, usages, time.time()) if (kind := kind_of(job)) else ""
            self._measured(uid, Progress(median_step(usages), current_loss(usages), (), why))

    def _measured(self, uid: str, progress: Progress) -> None:
        job = self._jobs.setdefault(uid, _Job())
        before, job.is_measured = job.progress, True
        if progress.step is None and progress.loss is None:
            progress = replace(progress, step=before.step, loss=before.loss)
        losses = before.losses
        if progress.loss is not None and (progress.step, _json(progress.loss)) != (before.step, _json(before.loss)):
            losses = (*merged(losses), progress.loss)
        self._take(uid, replace(progress, losses=losses))

    def _take(self, uid: str, progress: Progress) -> None:
        row = [uid, progress.step, _json(progress.loss), shape_of(progress.losses), progress.why]
        job = self._jobs[uid]
        job.progress = progress
        if row != job.row and (job.row or any(value not in (None, "") for value in row[1:])):
            job.row = row

    async def _pending(self) -> dict[str, HistoryRecord | None]:
        """The jobs whose record is to be read, with the record where it is known: of those that run, to begin with, and
        of those that have ended. What is gone is forgotten."""
        now, pending = time.monotonic(), dict[str, HistoryRecord | None]()
        live = dict(self._observation.view.jobs) if self._observation else {}
        for number, uid in enumerate(live):
            if number % JOBS_PER_STEP == 0:
                await asyncio.sleep(0)
            job, row = self._jobs.get(uid), self._list.live_row(uid)
            if (row is not None and has_ended(row)) or (job is not None and not job.is_seeded):
                pending[uid] = None
        records = self._list.known_records()
        pending |= {uid: record for uid, record in records.items() if uid not in live}
        self._jobs = {uid: job for uid, job in self._jobs.items() if uid in live or uid in records}
        jobs = {uid: self._jobs.setdefault(uid, _Job()) for uid in pending}
        return {uid: pending[uid] for uid, job in jobs.items() if job.look_at <= now}


def _read_records(history: Path, pending: dict[str, HistoryRecord | None]) -> dict[str, tuple[Progress, float]]:
    """By uid: the progress in the record of a job, and the seconds until the record is read again, infinite when there
    will be no more. A job without a record has none; those that take longer than RECORDS_TIME are left out. Reads
    files."""
    deadline, progress = time.monotonic() + RECORDS_TIME, dict[str, tuple[Progress, float]]()
    folders = {folder.name[-ID_LENGTH:]: folder for folder in job_folders(history)}
    for uid, record in pending.items():
        if time.monotonic() > deadline:
            break
        if record is None and (folder := folders.get(uid[:ID_LENGTH])) is not None:
            record = read_record(folder)
        if record is None:
            progress[uid] = Progress(), GROWING_SECONDS
        elif record.ended_at is None:
            progress[uid] = recorded_progress(record.logs), GROWING_SECONDS
        else:
            pause = PACE if time.time() - record.ended_at < SETTLE_SECONDS else math.inf
            progress[uid] = recorded_progress(record.logs), pause
    return progress


class ProgressTopic:
    """`progress`: first what is known of all jobs, then of those whose progress has changed. `on_news` is called when
    it was read."""

    interval = 0.5

    def __init__(self, reader: ProgressReader, observation: Observation | None, on_news: Callable[[], None]) -> None:
        self._reader, self._observation, self._on_news = reader, observation, on_news
        self._reading: asyncio.Task[dict[str, Row]] | None = None
        self._next = 0.0
        self._sent: dict[str, Row] = {}

    def is_due(self) -> bool:
        """Every PACE seconds, and when it was read."""
        if self._reading is not None:
            return self._reading.done()
        return time.monotonic() >= self._next and (self._observation is None or self._observation.synced)

    def changed(self, job_uid: str) -> None:
        """What changes with a job is in its row."""

    async def frames(self) -> AsyncIterator[bytes]:
        """The rows that have changed."""
        if self._reading is None:
            self._next = time.monotonic() + PACE
            self._reading = asyncio.ensure_future(self._reader.read())
            self._reading.add_done_callback(lambda done: self._on_news())
            return
        task, self._reading = self._reading, None
        known = task.result()
        rows = [row for uid, row in known.items() if self._sent.get(uid) is not row]
        self._sent = known
        for begin in range(0, len(rows), ROWS_PER_FRAME):
            part = rows[begin : begin + ROWS_PER_FRAME]
            yield msgspec.json.encode({"type": "progress", "columns": PROGRESS_COLUMNS, "rows": part})

    async def close(self) -> None:
        """The reading may be of use to other pages."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
