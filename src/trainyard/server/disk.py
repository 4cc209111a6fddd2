"""The numbered log on disk: SQLite, one row for each entry. Opening it reads the rows again, in their order.

Flow: `append` is the memory log's, and schedules a commit for when the event loop comes round. While each turn of the
loop brings more writes it waits for another: a commit takes as long as half a request. All that was appended until then
is one transaction (group commit), so a request is stored whole or not at all, and so are the requests that came with
it. Then the entries are settled: answers go out, watches hear. When the transaction fails, memory goes back to what the
disk has, and whoever waited is told why.

What survives:
- `synchronous=NORMAL`: a commit hands its pages to the operating system and does not wait for the platter. A process
  that is killed, however hard, takes nothing with it that was answered: what the kernel has, the next opening reads.
- A power failure, or a crash of the kernel, may take the last second: about every second while there are writes another
  thread makes the disk have all of it (a checkpoint). What is left is a whole past, never a half one. Waiting for
  the disk at each commit would cost each write milliseconds, and what runs here dies with the machine all the same.

On disk: rows above the floor are the past, all there. Of the rows up to the floor only those are kept that still are
the objects. Those that no longer count are deleted a few with each commit. Each row has a checksum.

Rules for this file:
- A file is opened only when it is ours, whole, and of a format we know; otherwise `DiskError` says what to do, and the
  file stays as it is.
- One process at a time: the lock is a file of its own. While the log is open it says so: a process that was killed
  leaves its last writes beside the log (`log.db-wal`), and a log without them is refused.
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

from trainyard.objects import Key, decode, encode
from trainyard.server.log import KEEP, KEEP_BYTES, Entry, Log, NotWritten
from trainyard.server.store import Record

log = logging.getLogger("trainyard.server")

NAME = "log.db"
FORMAT = 1
OURS = 0x54726E79  # SQLite's application_id: "Trny"
CHECKPOINT_EVERY = 1.0  # seconds: what a power failure may take
MOST_AT_ONCE = 250  # writes that a commit waits for
SWEPT = 500  # rows that no longer count, deleted with one commit
WAL_PAGES = 16_384  # 64 MiB: from there on a commit makes a checkpoint itself

_TABLES = (
    """CREATE TABLE entries (revision INTEGER PRIMARY KEY, store TEXT NOT NULL, namespace TEXT NOT NULL,
    name TEXT NOT NULL, body BLOB, labels BLOB, fields BLOB, last BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT""",
    "CREATE TABLE past (floor INTEGER NOT NULL, lives INTEGER NOT NULL) STRICT",
    "INSERT INTO past VALUES (0, 0)",
)
OPEN = b"open"  # what the lock's file says until the log is closed
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOVE = "move it away to start anew; nothing here deletes it"
_WHY = {
    "SQLITE_FULL": "there is no space left; free some",
    "SQLITE_READONLY": "it cannot be written; give this user the right to write it, and the folder it is in",
    "SQLITE_CANTOPEN": "it cannot be opened; give this user the right to read and write it, and the folder it is in",
    "SQLITE_CORRUPT": f"it is broken; {_MOVE}",
    "SQLITE_NOTADB": f"it is broken, or not ours; {_MOVE}",
    "SQLITE_BUSY": "another program uses it; end that one",
    "SQLITE_IOERR": "the disk does not take it; look whether it is full, has a limit, or has failed",
}


class DiskError(Exception):
    """The log cannot be opened. The text names the file and the fix. `spoilt`: no more space or right would help."""

    def __init__(self, path: Path, why: str, spoilt: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.spoilt = spoilt


class DiskLog(Log):
    """The log in that folder (made when it is not there). Raises DiskError. To be closed with `close`.

    `step` is called with the name of each step of a write: for tests that end the process there.
    """

    def __init__(
        self, folder: Path, keep: int = KEEP, keep_bytes: int = KEEP_BYTES, step: Callable[[str], object] = str
    ) -> None:
        super().__init__(keep, keep_bytes)
        self.path = folder / NAME
        self._step = step
        self._settled = self._written_floor = 0
        self._dead: deque[int] = deque()  # rows that no longer count
        self._due = False  # a commit is scheduled
        self._seen = 1  # how many writes it was for, a turn of the loop ago
        self._waiting: list[asyncio.Future[str]] = []  # the commit's outcome: "" or why not
        self._failing = False
        self._timer: asyncio.TimerHandle | None = None
        self._behind = ThreadPoolExecutor(1, "checkpoint")
        self._lock = _locked(folder)
        try:
            _must_have_its_writes(self.path, self._lock)
            self._file = _opened(self.path)
            try:
                self._read()
                _must_take_writes(self.path, self._file)
                os.pwrite(self._lock, OPEN, 0)
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def settled(self) -> int:
        return self._settled

    async def durable(self, revision: int) -> None:
        if revision <= self._settled:
            return
        told = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        if why := await told:
            raise NotWritten(why)

    def compact(self, floor: int) -> None:
        gone = min(floor, self._settled) - self.floor
        for entry in self._entries[: max(0, gone)]:
            if entry.before is not None:
                self._dead.append(entry.before.revision)
            if entry.now is None:
                self._dead.append(entry.revision)
        super().compact(floor)
        if gone > 0:
            self._schedule()

    def close(self) -> None:
        """Write what is left, and let the file go. Twice is once."""
        if self._lock < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._behind.shutdown()
        try:
            self._commit()
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            self._file.close()
            os.close(self._lock)
            self._lock = -1

    # --- a write

    def _keep(self, entry: Entry) -> None:
        self._schedule()

    def _schedule(self) -> None:
        if self._due:
            return
        try:
            asyncio.get_running_loop().call_soon(self._turn)
            self._due = True
        except RuntimeError:  # nobody shares this write
            if why := self._commit():
                raise NotWritten(why) from None

    def _turn(self) -> None:
        """The loop has come round. Who writes alone does not wait."""
        seen, self._seen = self._seen, self.revision - self._settled
        if seen < self._seen < MOST_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._commit()

    def _commit(self) -> str:
        """All that is not on disk, in one transaction. Why it failed, "" when it did not."""
        self._due, self._seen = False, 1
        if self._lock < 0:
            return "the log is closed"
        entries = self._entries[self._settled - self.floor :]
        dead = [self._dead[at] for at in range(min(SWEPT, len(self._dead)))]
        why = ""
        try:
            self._write(entries, dead)
        except sqlite3.Error as error:
            why = self._failed(entries, error)
        else:
            self._succeeded(entries, len(dead))
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            if not told.done():  # else whoever asked has gone
                told.set_result(why)
        return why

    def _write(self, entries: list[Entry], dead: list[int]) -> None:
        self._step("begin")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.executemany(_INSERT, self._rows(entries))
            if self.floor != self._written_floor:
                self._file.execute("UPDATE past SET floor = ?", (self.floor,))
            if dead:
                self._file.executemany("DELETE FROM entries WHERE revision = ?", ((one,) for one in dead))
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

    def _succeeded(self, entries: list[Entry], swept: int) -> None:
        if self._failing:
            self._failing = False
            log.warning("the log is written again: file=%s", self.path)
        for _ in range(swept):
            self._dead.popleft()
        self._written_floor = self.floor
        self._settled += len(entries)
        for entry in entries:
            for listener in self._listeners:
                listener(entry)
        if self._dead:
            self._later(self._schedule)
        if entries and self._timer is None:
            self._later(self._checkpoint)

    def _failed(self, entries: list[Entry], error: sqlite3.Error) -> str:
        """Memory goes back to what the disk has; whoever has kept book hears it the other way round."""
        why = f"nothing of this write is stored: {self.path}: {_said(error)}; the server goes on when that is cured"
        if not self._failing:
            self._failing = True
            log.error("%s", why)
        for entry in reversed(entries):
            self._take_back(entry)
            undone = Entry(entry.revision, entry.store, entry.key, entry.before, entry.now)
            for follower in self._followers:
                follower(undone)
        return why

    # --- now and then

    def _later(self, work: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):
            timer = asyncio.get_running_loop().call_later(CHECKPOINT_EVERY, work)
            if work == self._checkpoint:
                self._timer = timer

    def _checkpoint(self) -> None:
        self._timer = None
        self._behind.submit(_checkpointed, self.path)

    # --- opening

    def _read(self) -> None:
        """The rows, as they were written. Raises DiskError when one of them cannot be what was written."""
        try:
            (self.floor,) = self._file.execute("SELECT floor FROM past").fetchone()
            self._written_floor = self.floor
            for row in self._file.execute("SELECT * FROM entries ORDER BY revision"):
                self._recall(row)
        except (sqlite3.Error, ValueError, TypeError) as error:
            why = _said(error) if isinstance(error, sqlite3.Error) else f"it is broken ({error}); {_MOVE}"
            raise DiskError(self.path, why, spoilt=True) from None
        self._settled = self.revision

    def _recall(self, row: tuple[Any, ...]) -> None:
        revision, store, namespace, name, body, labels, fields, last, checksum = row
        if _checksum(row[:-1]) != checksum:
            raise ValueError(f"entry {revision} is not what was written")
        key = Key(namespace, name)
        before = self.get(store, key)
        now = None if body is None else Record(revision, body, decode(labels), decode(fields))
        self._put(store, key, now)
        if revision > self.floor:
            if revision != self.revision + 1:
                raise ValueError(f"entry {self.revision + 1} is missing")
            entry = Entry(revision, store, key, now, before, last)
            self._entries.append(entry)
            self._bytes += len(body or b"") + len(last)
            return
        if before is not None:
            self._dead.append(before.revision)
        if now is None:
            self._dead.append(revision)


def _row(entry: Entry) -> tuple[Any, ...]:
    now = entry.now
    body, labels, fields = (now.body, encode(now.labels), encode(now.fields)) if now else (None, None, None)
    row = (entry.revision, entry.store, *entry.key, body, labels, fields, entry.last)
    return (*row, _checksum(row))


def _checksum(row: tuple[Any, ...]) -> int:
    found = 0
    for part in row:
        piece = part if isinstance(part, bytes) else str(part).encode()
        found = zlib.crc32(piece, zlib.crc32(b"%d:" % len(piece), found))
    return found


def _locked(folder: Path) -> int:
    """The folder, made, and held by nobody else."""
    path = folder / "log.lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise DiskError(path, f"{what}; free some space, or name a folder that can be written") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise DiskError(folder / NAME, "another process uses it; end that one first") from None
    return lock


def _must_have_its_writes(path: Path, lock: int) -> None:
    beside = path.with_name(f"{path.name}-wal")
    if os.pread(lock, len(OPEN), 0) == OPEN and path.exists() and not beside.exists():
        text = f"it is missing, and the last writes of a process that was killed are in it; put it back, or {_MOVE}"
        raise DiskError(beside, text, spoilt=True)


def _opened(path: Path) -> sqlite3.Connection:
    """The file, looked through and ours. A new one is given its tables."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise DiskError(path, f"{what}; give this user the right to read and write it, or free some space") from None
    file = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        _must_be_ours(path, file)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        if not _number(file, "application_id"):
            file.execute("BEGIN IMMEDIATE")
            for statement in (*_TABLES, f"PRAGMA application_id = {OURS}", f"PRAGMA user_version = {FORMAT}"):
                file.execute(statement)
            file.execute("COMMIT")
    except sqlite3.Error as error:
        file.close()
        spoilt = _name(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")
        raise DiskError(path, _said(error), spoilt) from None
    except BaseException:
        file.close()
        raise
    return file


def _must_take_writes(path: Path, file: sqlite3.Connection) -> None:
    """Better now than at the first request."""
    try:
        file.execute("UPDATE past SET lives = lives + 1")
    except sqlite3.Error as error:
        raise DiskError(path, _said(error)) from None


def _must_be_ours(path: Path, file: sqlite3.Connection) -> None:
    ident, version = _number(file, "application_id"), _number(file, "user_version")
    tables = _first(file, "SELECT count(*) FROM sqlite_schema")
    if ident != OURS and (ident or tables):
        raise DiskError(path, f"it is another program's; {_MOVE}", spoilt=True)
    if version > FORMAT:
        text = f"it was written by a newer trainyard (format {version}, this one knows {FORMAT}); install that one"
        raise DiskError(path, text, spoilt=True)
    if (found := _first(file, "PRAGMA quick_check(1)")) != "ok":
        raise DiskError(path, f"it is broken ({' '.join(str(found).split())}); {_MOVE}", spoilt=True)


def _number(file: sqlite3.Connection, pragma: str) -> int:
    return int(_first(file, f"PRAGMA {pragma}"))


def _first(file: sqlite3.Connection, statement: str) -> Any:
    return file.execute(statement).fetchone()[0]


def _name(error: sqlite3.Error) -> str:
    """Of the kind of error: SQLITE_IOERR of SQLITE_IOERR_WRITE."""
    named = str(getattr(error, "sqlite_errorname", ""))
    return "_".join(named.split("_")[:2])


def _said(error: sqlite3.Error) -> str:
    return _WHY.get(_name(error), f"{error}; {_MOVE}")


def _checkpointed(path: Path) -> None:
    """What is in the write-ahead log goes into the file, and the disk has both. A writer is not kept waiting."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0.0)) as file:
            file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        log.warning("no checkpoint: file=%s why=%s", path, error)
