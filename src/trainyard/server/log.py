"""The numbered log: every write appends an entry, and its number is the resourceVersion.

Flow: a verb decides what an object becomes, encodes it once, with the number it will have, and appends it. Whoever
keeps book on the log (addresses, definitions) hears of the entry at once; whoever tells others of it (watches) hears of
it once it is settled; whoever comes later reads it with `after`.

Guarantees:
- Numbers grow by one with every write. An append succeeds only on top of the revision the writer has seen.
- What is stored is bytes, so nobody can edit it. What an entry replaced is kept with it, so that a watch can say
  "this left your selection" and a list can be read as it was at an older number.
- An entry is settled when nothing can take it back. In memory that is at once; on disk (disk.py) it is when it has been
  written. An answer waits for that with `durable`, so nobody is told what might still be undone.
- The past is kept for the last `keep` entries, fewer when they are large. Below the floor the answer is `Compacted`,
  never half an answer.

Assumption: one thread. An append is not interrupted; a follower must not append.

`_keep` is the seam where the log on disk goes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.objects import Key
from trainyard.server.store import Label, Record, Store, View

KEEP = 10_000
KEEP_BYTES = 32 * 1024 * 1024


class Stale(Exception):
    """The object is not at the revision the writer has seen."""


class Compacted(Exception):
    """That part of the past is gone."""


class NotWritten(Exception):
    """What was appended could not be stored, and has been taken back. The text names the reason and the fix."""


class Ahead(Exception):
    """That number has not been given to any write yet."""


@dataclass(slots=True)
class Entry:
    """One write. `now` is None for a deletion; `last` is then the object as it went, carrying the entry's number."""

    revision: int
    store: str
    key: Key
    now: Record | None
    before: Record | None
    last: bytes = b""
    frames: dict[object, bytes] = field(default_factory=dict)  # the watch lines of this entry, each encoded once


Entries = list[Entry]
Objects = list[tuple[Key, Record]]


class Log:
    """Entries in memory. `store` names a resource ("pods", "jobs.batch"); a key is unique in its store."""

    def __init__(self, keep: int = KEEP, keep_bytes: int = KEEP_BYTES) -> None:
        self._entries: Entries = []
        self._stores: dict[str, Store] = {}
        self._most, self._most_bytes = keep, keep_bytes
        self._bytes = 0  # of the bodies in the entries
        self._followers: list[Callable[[Entry], None]] = []
        self._listeners: list[Callable[[Entry], None]] = []  # of what is settled
        self.floor = 0
        """The oldest number that `after` and `list` still know."""

    @property
    def revision(self) -> int:
        """The number of the last write."""
        return self.floor + len(self._entries)

    @property
    def settled(self) -> int:
        """Up to this number nothing can be taken back."""
        return self.revision

    async def durable(self, revision: int) -> None:
        """Returns when that write is settled. Raises NotWritten when it has been taken back. To be called in the same
        step as the append: a number that was taken back is given again."""

    def follow(self, follower: Callable[[Entry], None], settled: bool = False) -> None:
        """Calls `follower` with every object that is there, as if it had just been made, then with every entry, at once
        or when it is settled. What is taken back is told to whoever hears at once: as an entry with `now` and `before`
        exchanged."""
        for name, store in self._stores.items():
            for key, record in store.records.items():
                follower(Entry(record.revision, name, key, record, None))
        (self._listeners if settled else self._followers).append(follower)

    def get(self, store: str, key: Key) -> Record | None:
        return self._stores[store].records.get(key) if store in self._stores else None

    def append(self, store: str, key: Key, record: Record | None, expect: int, last: bytes = b"") -> Entry:
        """Writes `record` (None deletes) over revision `expect` (0: there must be nothing). It gets the next number."""
        before = self.get(store, key)
        if (before.revision if before else 0) != expect:
            raise Stale(f"{store} {key} is not at revision {expect}")
        entry = Entry(self.revision + 1, store, key, record, before, last)
        if record is not None and record.revision != entry.revision:
            raise Stale(f"the record says {record.revision}, the log is at {self.revision}")
        self._put(store, key, record)
        self._entries.append(entry)
        for follower in self._followers:
            follower(entry)
        self._bytes += _weight(entry)
        self._keep(entry)
        if len(self._entries) >= 2 * self._most:
            self.compact(self.revision - self._most)
        elif self._bytes > self._most_bytes and len(self._entries) > 1:
            self.compact(self.floor + len(self._entries) // 2)
        return entry

    def after(self, revision: int, most: int | None = None) -> Entries:
        """The entries above that number, oldest first, at most that many."""
        start = self._past(revision)
        return self._entries[start : None if most is None else start + most]

    def list(self, store: str, revision: int = 0) -> Objects:
        """All objects of a store in the order of their keys; as they were at `revision` when one is given."""
        keys, records = self.view(store, revision)
        return [(key, records[key]) for key in keys]

    def view(self, store: str, revision: int = 0, label: Label | None = None) -> View:
        """The same, not copied. With a label those without it may be left out: who wants few of many reads only few."""
        there = self._stores.get(store) or Store()
        changed: dict[Key, Record | None] = {}
        for entry in self._entries[self._past(revision) :] if revision else ():
            if entry.store == store:
                changed.setdefault(entry.key, entry.before)
        if not changed:
            return there.labelled(label) if label else there.view()
        then = {key: record for key, record in {**there.records, **changed}.items() if record is not None}
        return View(sorted(then), then)

    def compact(self, floor: int) -> None:
        """Forgets the entries up to that number, settled ones only. The objects themselves stay."""
        floor = min(floor, self.settled)
        if floor > self.floor:
            self._bytes -= sum(_weight(entry) for entry in self._entries[: floor - self.floor])
            del self._entries[: floor - self.floor]
            self.floor = floor

    def _keep(self, entry: Entry) -> None:
        """Settles it."""
        for listener in self._listeners:
            listener(entry)

    def _take_back(self, entry: Entry) -> None:
        """The last entry was not written after all."""
        self._put(entry.store, entry.key, entry.before)
        self._bytes -= _weight(self._entries.pop())

    def _past(self, revision: int) -> int:
        if revision < self.floor:
            raise Compacted(f"revision {revision} is older than {self.floor}")
        if revision > self.revision:
            raise Ahead(f"revision {revision} is newer than {self.revision}")
        return revision - self.floor

    def _put(self, store: str, key: Key, record: Record | None) -> None:
        if store not in self._stores:
            self._stores[store] = Store()
        self._stores[store].put(key, record)


def _weight(entry: Entry) -> int:
    return len(entry.last) + (len(entry.now.body) if entry.now else 0)
