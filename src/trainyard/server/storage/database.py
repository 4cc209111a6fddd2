"""The file of the log: a SQLite database, and the lock file beside it. How both are opened and checked.

Rules:
- A file is only opened when it is a log of this program, intact, and of a known format; otherwise `DiskError` names the
  fix, and the file is not changed.
- One process at a time: the lock is a separate file. While the log is open the lock file contains `OPEN`: a process
  that was killed leaves its last writes beside the log (`log.db-wal`), and a log without that file is then refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

from trainyard.server.storage.rows import SCHEMA

log = logging.getLogger("trainyard.server")

NAME = "log.db"
FORMAT = 1
APPLICATION_ID = 0x54726E79  # SQLite's application_id: "Trny"
WAL_PAGES = 16_384  # 64 MiB: above this size a commit makes a checkpoint itself
OPEN = b"open"  # content of the lock file until the log is closed
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


def acquire_lock(folder: Path) -> int:
    """Create the folder and take its lock; return the descriptor of the lock file. Raises DiskError."""
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


def require_write_ahead_log(path: Path, lock_fd: int) -> None:
    """Raises DiskError when the last writes of a process that was killed are missing."""
    wal_path = path.with_name(f"{path.name}-wal")
    if os.pread(lock_fd, len(OPEN), 0) == OPEN and path.exists() and not wal_path.exists():
        text = f"it is missing, and the last writes of a process that was killed are in it; put it back, or {_MOVE}"
        raise DiskError(wal_path, text, spoilt=True)


def open_database(path: Path) -> sqlite3.Connection:
    """Open and check the database; a new one gets its tables. Raises DiskError."""
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
            for statement in (*SCHEMA, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {FORMAT}"):
                file.execute(statement)
            file.execute("COMMIT")
    except sqlite3.Error as error:
        file.close()
        spoilt = _error_name(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")
        raise DiskError(path, reason_of(error), spoilt) from None
    except BaseException:
        file.close()
        raise
    return file


def require_writable(path: Path, file: sqlite3.Connection) -> None:
    """Raises DiskError when the file is not writable: better at the start than at the first request."""
    try:
        file.execute("UPDATE past SET lives = lives + 1")
    except sqlite3.Error as error:
        raise DiskError(path, reason_of(error)) from None


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


def reason_of(error: Exception) -> str:
    """Why the file cannot be used, with the fix."""
    if not isinstance(error, sqlite3.Error):
        return f"it is broken ({error}); {_MOVE}"
    return _REASONS.get(_error_name(error), f"{error}; {_MOVE}")


def run_checkpoint(path: Path) -> None:
    """Move the write-ahead log into the file and sync both to disk. Does not block writers (PASSIVE)."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0.0)) as file:
            file.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        log.warning("the WAL could not be checkpointed: file=%s error=%s", path, error)
