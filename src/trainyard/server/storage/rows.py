"""The rows of the log on disk: entries as rows with a checksum and back, and the transaction that writes them."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from trainyard.objects import NamespacedName, decode, encode
from trainyard.server.model.store import LogEntry, Record

SCHEMA = (
    """CREATE TABLE entries (revision INTEGER PRIMARY KEY, store TEXT NOT NULL, namespace TEXT NOT NULL,
    name TEXT NOT NULL, body BLOB, labels BLOB, fields BLOB, last BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT""",
    "CREATE TABLE past (floor INTEGER NOT NULL, lives INTEGER NOT NULL) STRICT",
    "INSERT INTO past VALUES (0, 0)",
)
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Row(NamedTuple):
    """A row as it was read: an entry without the record that it replaced."""

    revision: int
    store: str
    key: NamespacedName
    record: Record | None
    last_state: bytes

    @property
    def size(self) -> int:
        """The size of the bodies in bytes."""
        return len(self.record.body if self.record else b"") + len(self.last_state)


def read_rows(file: sqlite3.Connection) -> Iterator[Row]:
    """The rows, sorted by revision. Raises ValueError for a damaged row, and what sqlite3 raises."""
    for columns in file.execute("SELECT * FROM entries ORDER BY revision"):
        revision, store, namespace, name, body, labels, fields, last, checksum = columns
        if _checksum(columns[:-1]) != checksum:
            raise ValueError(f"entry {revision} is not what was written")
        record = None if body is None else Record(revision, body, decode(labels), decode(fields))
        yield Row(revision, store, NamespacedName(namespace, name), record, last)


def read_floor(file: sqlite3.Connection) -> int:
    """The revision up to which the entries have been compacted."""
    (floor,) = file.execute("SELECT floor FROM past").fetchone()
    return int(floor)


def write_rows(
    file: sqlite3.Connection,
    entries: Sequence[LogEntry],
    obsolete: Sequence[int],
    floor: int | None,
    step: Callable[[str], object],
) -> None:
    """One transaction: insert these entries, delete the rows of the obsolete revisions, and set the floor unless it is
    None. `step` is called with the name of each step. Raises sqlite3.Error."""

    def inserted() -> Iterator[tuple[Any, ...]]:
        for entry in entries:
            step("insert")
            yield _columns(entry)

    step("begin")
    file.execute("BEGIN IMMEDIATE")
    try:
        file.executemany(_INSERT, inserted())
        if floor is not None:
            file.execute("UPDATE past SET floor = ?", (floor,))
        if obsolete:
            file.executemany("DELETE FROM entries WHERE revision = ?", ((revision,) for revision in obsolete))
        step("commit")
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    step("committed")


def _columns(entry: LogEntry) -> tuple[Any, ...]:
    record = entry.record
    body, labels, fields = (
        (record.body, encode(record.labels), encode(dict(record.fields))) if record else (None, None, None)
    )
    row = (entry.revision, entry.store, *entry.key, body, labels, fields, entry.last_state)
    return (*row, _checksum(row))


def _checksum(row: tuple[Any, ...]) -> int:
    checksum = 0
    for column in row:
        encoded = column if isinstance(column, bytes) else str(column).encode()
        checksum = zlib.crc32(encoded, zlib.crc32(b"%d:" % len(encoded), checksum))
    return checksum
