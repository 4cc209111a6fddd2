"""The rows of the list of jobs: those that exist, and the records of the history of those that are gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from trainyard.app.history import HistoryRecord, read_records
from trainyard.objects import parse_time
from trainyard.objects.structs import replace
from trainyard.views.job_row import job_row
from trainyard.window.observation import Observation

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
ROWS_PER_STEP = 50  # rows worked out in one step of the event loop: a row takes 70 us
MAX_MESSAGE = 300  # characters: a list of 10,000 jobs is a megabyte
HISTORY_SECONDS = 5.0  # the history is read again at most so often

RECORDING = "Running"  # the state of a record without a result

Row = list[Any]


class JobList:
    """Makes rows, in the order of COLUMNS. `history` is the folder of the history; None for none."""

    def __init__(self, observation: Observation | None, history: Path | None) -> None:
        self._observation, self._history = observation, history
        self._live_rows: dict[str, tuple[int, Row]] = {}  # by uid: revision and row
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
        revision = self._observation.revision(job_uid)
        if job_uid not in self._live_rows or self._live_rows[job_uid][0] != revision:
            row = job_row(self._observation.view, job_uid)
            row = replace(row, message=row.message[:MAX_MESSAGE])
            self._live_rows[job_uid] = revision, [*(getattr(row, column) for column in COLUMNS[:-1]), True]
        return self._live_rows[job_uid][1]

    async def changed_rows(self, job_uids: set[str]) -> dict[str, Row | None]:
        """The present rows of these jobs, by uid; None for a job that is gone and has no record."""
        rows = {uid: self.live_row(uid) for uid in job_uids}
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
            self._records, self._read_at = await asyncio.to_thread(read_records, self._history), now
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
        "ended": record.ended,
        "message": " ".join(record.text("message").split())[:MAX_MESSAGE],
        "live": False,
    }
    return [values[column] for column in COLUMNS]
