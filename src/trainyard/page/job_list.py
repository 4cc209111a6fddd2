"""The rows of the list of jobs: those that exist, and the records of the history of those that are gone."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from trainyard.app.history.records import HistoryRecord, read_records
from trainyard.app.job_files import in_thread
from trainyard.objects import parse_time, uid_of
from trainyard.objects.structs import replace
from trainyard.page.observation import Observation
from trainyard.views.diagnosis.brief import Observer, brief_why, may_wait
from trainyard.views.job_row import job_row

COLUMNS = (
    "uid",
    "namespace",
    "kind",
    "name",
    "state",
    "running",
    "replicas",
    "restarts",
    "created",
    "started",
    "ended",
    "message",
    "live",
)
REPEATED = ("namespace", "kind", "state", "message")  # columns whose texts are few: a frame has each text once
RELATIVE = ("started", "ended")
ROWS_PER_FRAME = 2000
ROWS_PER_STEP = 50  # rows worked out in one step of the event loop: a row takes 70 us
LOOK_SECONDS = 12.0  # a job that waits is looked at again; the second time twice as late, and so on
WHY_SHARE = 100.0  # finding out why a job waits takes at most this part of a core
MAX_MESSAGE = 300  # characters
HISTORY_SECONDS = 5.0  # the history is read again at most so often

RECORDING = "Running"  # the state of a record without a result

Row = list[Any]


class _LiveRow(msgspec.Struct):
    """A row. `next_look`: when it is made again without a change, monotonic: why a job waits may depend on how long it
    does. `why_after`: until then the why stays, also after a change: that of a thousand replicas takes a while."""

    revision: int
    row: Row
    why: str
    changed_at: float
    next_look: float
    why_after: float


class JobList:
    """Makes rows, in the order of COLUMNS. `history` is the folder of the history; None for none. `are_processes`: all
    nodes are Trainyard's."""

    def __init__(self, observation: Observation | None, history: Path | None, are_processes: bool = True) -> None:
        self._observation, self._history, self._are_processes = observation, history, are_processes
        self._live_rows: dict[str, _LiveRow] = {}  # by uid
        self._records: list[HistoryRecord] = []
        self._read_at = float("-inf")

    async def rows(self) -> AsyncIterator[Row]:
        """The rows of all jobs, the newest first; those of the history last."""
        jobs = self._observation.view.jobs if self._observation else {}
        newest_first = sorted(jobs, key=lambda uid: str(jobs[uid]["metadata"].get("creationTimestamp")), reverse=True)
        for number, uid in enumerate(newest_first):
            if number % ROWS_PER_STEP == 0:
                await asyncio.sleep(0)
            if (row := self.live_row(uid)) is not None:
                yield row
        for record in await self._recorded():
            if record.text("uid") not in jobs:
                yield recorded_row(record)

    def live_row(self, job_uid: str) -> Row | None:
        """The row of a job that exists, made once for all tabs; None for another one."""
        if self._observation is None or job_uid not in self._observation.view.jobs:
            self._live_rows.pop(job_uid, None)
            return None
        kept, now = self._live_rows.get(job_uid), time.monotonic()
        revision = self._observation.revision(job_uid)
        if kept is None or kept.revision != revision or kept.next_look <= now:
            self._live_rows[job_uid] = kept = self._new_row(self._observation, job_uid, revision, now)
        return kept.row

    def next_look(self, job_uid: str) -> float:
        """When the row of a job that exists may be another one without a change, monotonic; infinite for never."""
        kept = self._live_rows.get(job_uid)
        return kept.next_look if kept else math.inf

    def _new_row(self, observation: Observation, job_uid: str, revision: int, now: float) -> _LiveRow:
        view, kept = observation.view, self._live_rows.get(job_uid)
        slots = view.slots(job_uid)
        row = job_row(view, job_uid, slots)
        changed_at = kept.changed_at if kept and kept.revision == revision else now
        why, next_look, why_after = row.message, math.inf, 0.0
        if may_wait(view.jobs[job_uid], row):
            if kept and kept.why_after > now:
                why, next_look, why_after = kept.why, kept.why_after, kept.why_after
            else:
                pods = {uid_of(pod): pod for pod in observation.pods(job_uid)}
                why = brief_why(view, job_uid, slots, pods, Observer(time.time(), self._are_processes)) or row.message
                why_after = now + WHY_SHARE * (time.monotonic() - now)
                next_look = now + max(LOOK_SECONDS, now - changed_at)
        row = replace(row, message=_message(row.kind, row.name, why))
        values = [*map(msgspec.to_builtins(row).get, COLUMNS[:-1]), True]
        return _LiveRow(revision, values, why, changed_at, next_look, why_after)

    async def changed_rows(self, job_uids: set[str]) -> dict[str, Row | None]:
        """The present rows of these jobs, by uid; None for a job that is gone and has no record."""
        rows: dict[str, Row | None] = {}
        for number, uid in enumerate(job_uids):
            if number % ROWS_PER_STEP == ROWS_PER_STEP - 1:
                await asyncio.sleep(0)
            rows[uid] = self.live_row(uid)
        if any(row is None for row in rows.values()):
            recorded = {record.text("uid"): recorded_row(record) for record in await self._recorded(0.0)}
            rows = {uid: row or recorded.get(uid) for uid, row in rows.items()}
        return rows

    def known_records(self) -> dict[str, HistoryRecord]:
        """The records that were read last, the newest first, by the uid of the job."""
        return {record.text("uid"): record for record in self._records}

    async def _recorded(self, max_age: float = HISTORY_SECONDS) -> list[HistoryRecord]:
        now = time.monotonic()
        if self._history is not None and now - self._read_at > max_age:
            self._records, self._read_at = await in_thread(read_records, self._history), now
        return self._records


def is_unfinished(row: Row) -> bool:
    """Whether this is the row of a record without a result: the job is gone, and its end is being recorded."""
    values = dict(zip(COLUMNS, row, strict=True))
    return not values["live"] and values["state"] == RECORDING


def has_ended(row: Row) -> bool:
    """Whether this is the row of a job with a result."""
    return row[COLUMNS.index("state")] in ("Succeeded", "Failed")


def recorded_row(record: HistoryRecord) -> Row:
    """The row of a record."""
    values = {
        "uid": record.text("uid"),
        "namespace": record.namespace,
        "kind": record.kind,
        "name": record.name,
        "state": record.result or RECORDING,
        "running": 0,
        "replicas": record.replicas,
        "restarts": record.data.get("restarts") or 0,
        "created": record.started or None,
        "started": parse_time(record.data.get("started")),
        "ended": record.ended_at,
        "message": _message(record.kind, record.name, record.text("message")),
        "live": False,
    }
    return [values[column] for column in COLUMNS]


def _message(kind: str, name: str, text: str) -> str:
    """The text in one line, without the words of `kubeflow.org/v1` that say what the row says: a column is narrow."""
    return " ".join(text.split()).removeprefix(f"{kind} {name} is failed because ")[:MAX_MESSAGE]


def jobs_frame(rows: list[Row], gone: list[str], *, reset: bool, more: bool) -> bytes:
    """A frame of the topic `jobs`: the rows of jobs that are new or changed, of all jobs with `reset`, and the uids of
    those that are gone. So that 10,000 jobs are a megabyte, a row has the index of its text in `texts` in the columns
    `repeated`, and seconds since `created` in the columns `relative`, if it has both."""
    texts: dict[Any, int] = {}
    coded = []
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        for column in REPEATED:
            values[column] = texts.setdefault(values[column], len(texts))
        for column in RELATIVE:
            if values[column] is not None and values["created"] is not None:
                values[column] = _short(values[column] - values["created"])
        values["created"] = _short(values["created"])
        coded.append(list(values.values()))
    frame = {"type": "jobs", "reset": reset, "more": more, "columns": COLUMNS, "rows": coded, "gone": gone}
    return msgspec.json.encode({**frame, "repeated": REPEATED, "texts": list(texts), "relative": RELATIVE})


def _short(seconds: float | None) -> float | None:
    """Whole seconds without their fraction."""
    return int(seconds) if seconds is not None and float(seconds).is_integer() else seconds
