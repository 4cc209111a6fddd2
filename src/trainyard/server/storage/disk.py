"""The log on disk: a SQLite file with one row for each entry. Opening it replays the rows in order.

Flow: `append` changes memory (see log.py) and schedules a commit for the next turn of the event loop. While each turn
brings more writes, the commit waits for another turn: a commit takes as long as half a request. All entries appended
until then are one transaction (group commit), so a request is stored completely or not at all, and so are the requests
committed with it. Then the entries are settled: responses and watch events are sent. When the transaction fails, memory
is rolled back to what is on disk, and every waiting request gets the reason.

Durability:
- `synchronous=NORMAL`: a commit hands its pages to the operating system and does not call fsync. A process that is
  killed (SIGKILL, too) loses no acknowledged write: the next opening reads it from the kernel's page cache.
- A power failure, or a kernel crash, may lose about the last second: about every second while there are writes, another
  thread makes a checkpoint, which syncs the file. The remaining log is always a complete prefix of the history. An
  fsync per commit would cost each write milliseconds, and the workloads here die with the machine anyway.

On disk: rows above the floor are the complete history. Of the rows up to the floor only those remain that are the
current revision of an object. Obsolete rows are deleted, a few with each commit. Each row has a checksum.

Rules for this file:
- A file is only opened when it is a log of this program, intact, and of a known format; otherwise `DiskError` names the
  fix, and the file is not changed.
- One process at a time: the lock is a separate file. While the log is open the lock file contains `OPEN`: a process
  that was killed leaves its last writes beside the log (`log.db-wal`), and a log without that file is then refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainyard.objects import NamespacedName, decode, encode
from trainyard.server.storage.log import KEEP, KEEP_BYTES, Entry, Log, NotWritten
from trainyard.server.storage.store import Record

log = logging.getLogger("trainyard.server")

NAME = "log.db"
FORMAT = 1
APPLICATION_ID = 0x54726E79  # SQLite's application_id: "Trny"
CHECKPOINT_EVERY = 1.0  # seconds of writes that a power failure may lose
MAX_BATCH = 250  # pending writes above which a commit does not wait any longer
MAX_DELETED_ROWS = 500  # obsolete rows deleted with one commit
WAL_PAGES = 16_384  # 64 MiB: above this size a commit makes a checkpoint itself

_SCHEMA = (
    """CREATE TABLE entries (revision INTEGER PRIMARY KEY, store TEXT NOT NULL, namespace TEXT NOT NULL,
    name TEXT NOT NULL, body BLOB, labels BLOB, fields BLOB, last BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT""",
    "CREATE TABLE past (floor INTEGER NOT NULL, lives INTEGER NOT NULL) STRICT",
    "INSERT INTO past VALUES (0, 0)",
)
OPEN = b"open"  # content of the lock file until the log is closed
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOVE = "move it away to start anew; nothing here deletes it"
_REASONS = {
    "SQLITE_FULL": "there is no space left; free some",
    "SQLITE_READONLY": "it cannot be written; give this user the right to write it, and the folder it is in",
    "SQLITE_CANTOPEN": "it cannot be opened; give this user the right to read and write it, and the folder it is in",
    "SQLITE_CORRUPT": f"it is broken; {_MOVE}",
    "SQLITE_NOTADB": f"it is broken, or not ours; {_MOVE}",
    "SQLITE_BUSY": "another program uses it; end that one",
    "SQLITE_IOERR": "the disk does not take it; look whether it is full, has a limit, or has failed",
}


class DiskError(Exception):
    """The log cannot be opened. The text names the file and the fix. `unusable`: the file itself is unusable; more disk
    space or other permissions would not help."""

    def __init__(self, path: Path, why: str, spoilt: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.unusable = spoilt


class DiskLog(Log):
    """The log in that folder (created when it is missing). Raises DiskError. Must be closed with `close`.

    `step` is called with the name of each step of a write: for tests that kill the process there.
    """

    def __init__(
        self, folder: Path, keep: int = KEEP, keep_bytes: int = KEEP_BYTES, step: Callable[[str], object] = str
    ) -> None:
        super().__init__(keep, keep_bytes)
        self.path = folder / NAME
        self._step = step
        self._settled = self._written_floor = 0
        self._obsolete: deque[int] = deque()  # revisions of obsolete rows
        self._commit_scheduled = False  # a commit has been scheduled
        self._pending_last_turn = 1  # how many writes were pending one turn of the loop ago
        self._commit_waiters: list[asyncio.Future[str]] = []  # results of the commit: "" or the reason it failed
        self._failing = False
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._checkpoint_executor = ThreadPoolExecutor(1, "checkpoint")
        self._lock_fd = _acquire_lock(folder)
        try:
            _require_write_ahead_log(self.path, self._lock_fd)
            self._file = _open_database(self.path)
            try:
                self._load_rows()
                _require_writable(self.path, self._file)
                os.pwrite(self._lock_fd, OPEN, 0)
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            os.close(self._lock_fd)
            raise

    @property
    def settled(self) -> int:
        return self._settled

    async def wait_durable(self, revision: int) -> None:
        if revision <= self._settled:
            return
        outcome = asyncio.get_running_loop().create_future()
        self._commit_waiters.append(outcome)
        if error := await outcome:
            raise NotWritten(error)

    def compact(self, floor: int) -> None:
        forgotten = min(floor, self._settled) - self.floor
        for entry in self._entries[: max(0, forgotten)]:
            if entry.previous is not None:
                self._obsolete.append(entry.previous.revision)
            if entry.record is None:
                self._obsolete.append(entry.revision)
        super().compact(floor)
        if forgotten > 0:
            self._schedule()

    def close(self) -> None:
        """Commits the pending writes, closes the file and releases the lock. Idempotent."""
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

    def _keep(self, entry: Entry) -> None:
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
        pending, self._pending_last_turn = self._pending_last_turn, self.revision - self._settled
        if pending < self._pending_last_turn < MAX_BATCH:
            asyncio.get_running_loop().call_soon(self._loop_turn)
        else:
            self._commit()

    def _commit(self) -> str:
        """Writes all entries that are not on disk in one transaction. Returns the reason of a failure, "" on
        success."""
        self._commit_scheduled, self._pending_last_turn = False, 1
        if self._lock_fd < 0:
            return "the log is closed"
        entries = self._entries[self._settled - self.floor :]
        obsolete = [self._obsolete[index] for index in range(min(MAX_DELETED_ROWS, len(self._obsolete)))]
        failure = ""
        try:
            self._write(entries, obsolete)
        except sqlite3.Error as error:
            failure = self._commit_failed(entries, error)
        else:
            self._commit_succeeded(entries, len(obsolete))
        waiters, self._commit_waiters = self._commit_waiters, []
        for waiter in waiters:
            if not waiter.done():  # else the request was cancelled
                waiter.set_result(failure)
        return failure

    def _write(self, entries: list[Entry], obsolete: list[int]) -> None:
        self._step("begin")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.executemany(_INSERT, self._rows(entries))
            if self.floor != self._written_floor:
                self._file.execute("UPDATE past SET floor = ?", (self.floor,))
            if obsolete:
                self._file.executemany("DELETE FROM entries WHERE revision = ?", ((revision,) for revision in obsolete))
            self._step("commit")
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise
        self._step("committed")

    def _rows(self, entries: list[Entry]) -> Iterator[tuple[Any, ...]]:
        for entry in entries:
            self._step("insert")
            yield _row(entry)

    def _commit_succeeded(self, entries: list[Entry], swept: int) -> None:
        if self._failing:
            self._failing = False
            log.warning("the log is written again: file=%s", self.path)
        for _ in range(swept):
            self._obsolete.popleft()
        self._written_floor = self.floor
        self._settled += len(entries)
        for entry in entries:
            for listener in self._listeners:
                listener(entry)
        if self._obsolete:
            self._call_later(self._schedule)
        if entries and self._checkpoint_timer is None:
            self._call_later(self._checkpoint)

    def _commit_failed(self, entries: list[Entry], error: sqlite3.Error) -> str:
        """Rolls memory back to what is on disk; followers get each entry with `now` and `before` exchanged. Returns the
        reason."""
        reason = (
            f"nothing of this write is stored: {self.path}: {_reason(error)}; the server goes on when that is cured"
        )
        if not self._failing:
            self._failing = True
            log.error("%s", reason)
        for entry in reversed(entries):
            self._take_back(entry)
            undone = Entry(entry.revision, entry.store, entry.key, entry.previous, entry.record)
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
        self._checkpoint_executor.submit(_run_checkpoint, self.path)

    # --- opening

    def _load_rows(self) -> None:
        """Replays the rows. Raises DiskError when a row is damaged or missing."""
        try:
            (self.floor,) = self._file.execute("SELECT floor FROM past").fetchone()
            self._written_floor = self.floor
            for row in self._file.execute("SELECT * FROM entries ORDER BY revision"):
                self._load_row(row)
        except (sqlite3.Error, ValueError, TypeError) as error:
            reason = _reason(error) if isinstance(error, sqlite3.Error) else f"it is broken ({error}); {_MOVE}"
            raise DiskError(self.path, reason, spoilt=True) from None
        self._settled = self.revision

    def _load_row(self, row: tuple[Any, ...]) -> None:
        revision, store, namespace, name, body, labels, fields, last, checksum = row
        if _checksum(row[:-1]) != checksum:
            raise ValueError(f"entry {revision} is not what was written")
        key = NamespacedName(namespace, name)
        before = self.get(store, key)
        record = None if body is None else Record(revision, body, decode(labels), decode(fields))
        self._put(store, key, record)
        if revision > self.floor:
            if revision != self.revision + 1:
                raise ValueError(f"entry {self.revision + 1} is missing")
            entry = Entry(revision, store, key, record, before, last)
            self._entries.append(entry)
            self._bytes += len(body or b"") + len(last)
            return
        if before is not None:
            self._obsolete.append(before.revision)
        if record is None:
            self._obsolete.append(revision)


def _row(entry: Entry) -> tuple[Any, ...]:
    record = entry.record
    body, labels, fields = (record.body, encode(record.labels), encode(record.fields)) if record else (None, None, None)
    row = (entry.revision, entry.store, *entry.key, body, labels, fields, entry.last_state)
    return (*row, _checksum(row))


def _checksum(row: tuple[Any, ...]) -> int:
    checksum = 0
    for column in row:
        encoded = column if isinstance(column, bytes) else str(column).encode()
        checksum = zlib.crc32(encoded, zlib.crc32(b"%d:" % len(encoded), checksum))
    return checksum


def _acquire_lock(folder: Path) -> int:
    """Creates the folder and takes its lock; returns the descriptor of the lock file. Raises DiskError."""
    path = folder / "log.lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiskError(path, f"{reason}; free some space, or name a folder that can be written") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DiskError(folder / NAME, "another process uses it; end that one first") from None
    return descriptor


def _require_write_ahead_log(path: Path, lock_fd: int) -> None:
    wal_path = path.with_name(f"{path.name}-wal")
    if os.pread(lock_fd, len(OPEN), 0) == OPEN and path.exists() and not wal_path.exists():
        text = f"it is missing, and the last writes of a process that was killed are in it; put it back, or {_MOVE}"
        raise DiskError(wal_path, text, spoilt=True)


def _open_database(path: Path) -> sqlite3.Connection:
    """Opens and checks the database; a new one gets its tables. Raises DiskError."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiskError(path, f"{reason}; give this user the right to read and write it, or free some space") from None
    file = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        _require_own_format(path, file)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        if not _pragma(file, "application_id"):
            file.execute("BEGIN IMMEDIATE")
            for statement in (*_SCHEMA, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {FORMAT}"):
                file.execute(statement)
            file.execute("COMMIT")
    except sqlite3.Error as error:
        file.close()
        spoilt = _error_name(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")
        raise DiskError(path, _reason(error), spoilt) from None
    except BaseException:
        file.close()
        raise
    return file


def _require_writable(path: Path, file: sqlite3.Connection) -> None:
    """Raises DiskError when the file is not writable: better at the start than at the first request."""
    try:
        file.execute("UPDATE past SET lives = lives + 1")
    except sqlite3.Error as error:
        raise DiskError(path, _reason(error)) from None


def _require_own_format(path: Path, file: sqlite3.Connection) -> None:
    application_id, version = _pragma(file, "application_id"), _pragma(file, "user_version")
    tables = _fetch_value(file, "SELECT count(*) FROM sqlite_schema")
    if application_id != APPLICATION_ID and (application_id or tables):
        raise DiskError(path, f"it is another program's; {_MOVE}", spoilt=True)
    if version > FORMAT:
        text = f"it was written by a newer trainyard (format {version}, this one knows {FORMAT}); install that one"
        raise DiskError(path, text, spoilt=True)
    if (result := _fetch_value(file, "PRAGMA quick_check(1)")) != "ok":
        raise DiskError(path, f"it is broken ({' '.join(str(result).split())}); {_MOVE}", spoilt=True)


def _pragma(file: sqlite3.Connection, pragma: str) -> int:
    return int(_fetch_value(file, f"PRAGMA {pragma}"))


def _fetch_value(file: sqlite3.Connection, statement: str) -> Any:
    return file.execute(statement).fetchone()[0]


def _error_name(error: sqlite3.Error) -> str:
    """The primary error name: SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    name = str(getattr(error, "sqlite_errorname", ""))
    return "_".join(name.split("_")[:2])


def _reason(error: sqlite3.Error) -> str:
    return _REASONS.get(_error_name(error), f"{error}; {_MOVE}")


def _run_checkpoint(path: Path) -> None:
    """Moves the write-ahead log into the file and syncs both to disk. Does not block writers (PASSIVE)."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0.0)) as file:
            file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        log.warning("no checkpoint: file=%s why=%s", path, error)
