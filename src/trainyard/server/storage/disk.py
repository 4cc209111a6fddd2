"""The log on disk: a SQLite file with one row for each entry. Opening it replays the rows in order.

Flow: `append` changes memory (see log.py) and schedules a commit for the next turn of the event loop. While each turn
brings more writes, the commit waits for another turn: a commit takes as long as half a request. All entries appended
until then are one transaction (group commit), so a request is stored completely or not at all, and so are the requests
in it. After the commit responses and watch events are sent. When the transaction fails,
memory is rolled back to what is on disk, and every waiting request gets the reason.

Durability:
- `synchronous=NORMAL`: a commit hands its pages to the operating system and does not call fsync. A process that is
  killed (SIGKILL, too) loses no acknowledged write: the next opening reads it from the kernel's page cache.
- A power failure, or a kernel crash, may lose about the last second: about every second while there are writes, another
  thread makes a checkpoint, which syncs the file. The remaining log is always a complete prefix of the history. An
  fsync per commit would cost each write milliseconds, and the workloads here die with the machine anyway.

On disk: rows above the floor are the complete history. Of the rows up to the floor only those remain that are the
current revision of an object. Obsolete rows are deleted, a few with each commit. Each row has a checksum (rows.py).
database.py says which files are opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainyard.server.model.store import LogEntry
from trainyard.server.storage.database import (
    NAME,
    OPEN,
    DiskError,
    acquire_lock,
    open_database,
    reason_of,
    require_writable,
    require_write_ahead_log,
    run_checkpoint,
)
from trainyard.server.storage.log import KEEP, KEEP_BYTES, NotWritten, RevisionLog
from trainyard.server.storage.rows import Row, read_floor, read_rows, write_rows

log = logging.getLogger("trainyard.server")

CHECKPOINT_EVERY = 1.0  # seconds of writes that a power failure may lose
MAX_BATCH = 250  # pending writes above which a commit does not wait any longer
MAX_DELETED_ROWS = 500  # obsolete rows deleted with one commit


class DiskLog(RevisionLog):
    """The log in that folder (created when it is missing). Raises DiskError. Must be closed with `close`.

    `step` is called with the name of each step of a write: for tests that kill the process there.
    """

    def __init__(
        self, folder: Path, keep: int = KEEP, keep_bytes: int = KEEP_BYTES, step: Callable[[str], object] = str
    ) -> None:
        super().__init__(keep, keep_bytes)
        self.path = folder / NAME
        self._step = step
        self._committed = self._written_floor = 0
        self._obsolete: deque[int] = deque()  # revisions of obsolete rows
        self._commit_scheduled = False  # a commit has been scheduled
        self._pending_last_turn = 1  # how many writes were pending one turn of the loop ago
        self._commit_waiters: list[asyncio.Future[str]] = []  # results of the commit: "" or the reason it failed
        self._failing = False
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._checkpoint_executor = ThreadPoolExecutor(1, "checkpoint")
        self._lock_fd = acquire_lock(folder)
        try:
            require_write_ahead_log(self.path, self._lock_fd)
            self._file = open_database(self.path)
            try:
                self._load_rows()
                require_writable(self.path, self._file)
                os.pwrite(self._lock_fd, OPEN, 0)
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            os.close(self._lock_fd)
            raise

    @property
    def committed(self) -> int:
        """The highest revision that is on disk."""
        return self._committed

    async def wait_committed(self, revision: int) -> None:
        """Return when the revision is on disk. Raises NotWritten when it could not be stored."""
        if revision <= self._committed:
            return
        outcome = asyncio.get_running_loop().create_future()
        self._commit_waiters.append(outcome)
        if error := await outcome:
            raise NotWritten(error)

    def compact(self, floor: int) -> None:
        """As RevisionLog.compact; the rows that it makes superfluous are deleted from the file, too."""
        forgotten = min(floor, self._committed) - self.floor
        for entry in self._entries[: max(0, forgotten)]:
            if entry.previous is not None:
                self._obsolete.append(entry.previous.revision)
            if entry.record is None:
                self._obsolete.append(entry.revision)
        super().compact(floor)
        if forgotten > 0:
            self._schedule()

    def close(self) -> None:
        """Commit the pending writes, close the file and release the lock. Idempotent."""
        if self._lock_fd < 0:
            return
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        self._checkpoint_executor.shutdown()
        try:
            self._commit()
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock_fd, 0)
            self._file.close()
            os.close(self._lock_fd)
            self._lock_fd = -1

    # --- a write

    def _keep(self, entry: LogEntry) -> None:
        self._schedule()

    def _schedule(self) -> None:
        if self._commit_scheduled:
            return
        try:
            asyncio.get_running_loop().call_soon(self._loop_turn)
            self._commit_scheduled = True
        except RuntimeError:  # no event loop: no other write can share the commit
            if error := self._commit():
                raise NotWritten(error) from None

    def _loop_turn(self) -> None:
        """Runs once per turn of the loop. Commits, unless this turn brought more writes; a single write does not
        wait."""
        pending, self._pending_last_turn = self._pending_last_turn, self.revision - self._committed
        if pending < self._pending_last_turn < MAX_BATCH:
            asyncio.get_running_loop().call_soon(self._loop_turn)
        else:
            self._commit()

    def _commit(self) -> str:
        """Write all entries that are not on disk in one transaction. Returns the reason of a failure, "" on
        success."""
        self._commit_scheduled, self._pending_last_turn = False, 1
        if self._lock_fd < 0:
            return "the log is closed"
        entries = self._entries[self._committed - self.floor :]
        obsolete = [self._obsolete[index] for index in range(min(MAX_DELETED_ROWS, len(self._obsolete)))]
        failure = ""
        try:
            floor = None if self.floor == self._written_floor else self.floor
            write_rows(self._file, entries, obsolete, floor, self._step)
        except sqlite3.Error as error:
            failure = self._commit_failed(entries, error)
        else:
            self._commit_succeeded(entries, len(obsolete))
        waiters, self._commit_waiters = self._commit_waiters, []
        for waiter in waiters:
            if not waiter.done():  # else the request was cancelled
                waiter.set_result(failure)
        return failure

    def _commit_succeeded(self, entries: list[LogEntry], swept: int) -> None:
        if self._failing:
            self._failing = False
            log.warning("writing works again: file=%s", self.path)
        for _ in range(swept):
            self._obsolete.popleft()
        self._written_floor = self.floor
        self._committed += len(entries)
        for entry in entries:
            for listener in self._listeners:
                listener(entry)
        if self._obsolete:
            self._call_later(self._schedule)
        if entries and self._checkpoint_timer is None:
            self._call_later(self._checkpoint)

    def _commit_failed(self, entries: list[LogEntry], error: sqlite3.Error) -> str:
        """Roll memory back to what is on disk; followers get each entry with `record` and `previous` exchanged.
        Returns the reason."""
        reason = (
            f"nothing of this write is stored: {self.path}: {reason_of(error)}; the server goes on when that is cured"
        )
        if not self._failing:
            self._failing = True
            log.error("%s", reason)
        for entry in reversed(entries):
            self._take_back(entry)
            undone = LogEntry(entry.revision, entry.store, entry.key, entry.previous, entry.record)
            for follower in self._followers:
                follower(undone)
        return reason

    # --- periodic work

    def _call_later(self, work: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):
            timer = asyncio.get_running_loop().call_later(CHECKPOINT_EVERY, work)
            if work == self._checkpoint:
                self._checkpoint_timer = timer

    def _checkpoint(self) -> None:
        self._checkpoint_timer = None
        self._checkpoint_executor.submit(run_checkpoint, self.path)

    # --- opening

    def _load_rows(self) -> None:
        """Replay the rows. Raises DiskError when a row is damaged or missing."""
        try:
            self.floor = self._written_floor = read_floor(self._file)
            for row in read_rows(self._file):
                self._load_row(row)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise DiskError(self.path, reason_of(error), spoilt=True) from None
        self._committed = self.revision

    def _load_row(self, row: Row) -> None:
        before = self.get(row.store, row.key)
        self._put(row.store, row.key, row.record)
        if row.revision > self.floor:
            if row.revision != self.revision + 1:
                raise ValueError(f"entry {self.revision + 1} is missing")
            self._entries.append(LogEntry(row.revision, row.store, row.key, row.record, before, row.last_state))
            self._bytes += row.size
            return
        if before is not None:
            self._obsolete.append(before.revision)
        if row.record is None:
            self._obsolete.append(row.revision)
