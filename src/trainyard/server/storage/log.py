"""The storage: a log in which every write appends an entry, whose number (revision) is the resourceVersion.

Flow: a verb computes the new object, encodes it once, with the revision that it will have, and appends it. Followers
that maintain state (addresses, definitions) get the entry at once; listeners that publish it (watches) get it when it
is committed; later watches read it with `after`.

Guarantees:
- The revision grows by one with every write. An append succeeds only on top of the revision that the writer has read.
- Records contain bytes, so they are immutable. An entry also has the record that it replaced, so that a watch can send
  DELETED for an object that left its selection, and a list can be read at an older revision.
- An entry is committed when it cannot be rolled back: in memory at once, on disk (disk.py) with its transaction.
  Responses wait for that with `wait_committed`, so that no client sees a write that might still be undone.
- The history has the last `keep` entries, fewer when they are large. Reads below the floor raise `Compacted`.

Assumption: one thread. An append is not interrupted; a follower must not append.

DiskLog (disk.py) overrides `_keep` to write entries to disk.
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import NamespacedName
from trainyard.server.model.store import Label, LogEntry, ObjectStore, Record, View

KEEP = 10_000
KEEP_BYTES = 16 * 1024 * 1024


class RevisionConflict(Exception):
    """The object is not at the revision that the writer has read."""


class Compacted(Exception):
    """The history of that revision has been compacted."""


class NotWritten(Exception):
    """An appended entry could not be stored and was rolled back. The text names the reason and the fix."""


class FutureRevision(Exception):
    """The revision is higher than that of the last write."""


Entries = list[LogEntry]
Objects = list[tuple[NamespacedName, Record]]


class RevisionLog:
    """Entries in memory. `store` names a resource ("pods", "jobs.batch"); a key is unique in its store."""

    def __init__(self, keep: int = KEEP, keep_bytes: int = KEEP_BYTES) -> None:
        self._entries: Entries = []
        self._stores: dict[str, ObjectStore] = {}
        self._keep_entries, self._keep_max_bytes = keep, keep_bytes
        self._bytes = 0  # total size of the bodies in the entries
        self._followers: list[Callable[[LogEntry], None]] = []
        self._listeners: list[Callable[[LogEntry], None]] = []  # called with committed entries
        self.floor = 0
        """The oldest revision that `after` and `list` can read."""

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self.floor + len(self._entries)

    @property
    def committed(self) -> int:
        """The highest committed revision."""
        return self.revision

    async def wait_committed(self, revision: int) -> None:
        """Return when that revision is committed. Raises NotWritten when it was rolled back. Must be called without an
        await after the append: the revision of an entry that was rolled back is used again."""

    def follow(self, follower: Callable[[LogEntry], None], committed: bool = False) -> None:
        """Call `follower` with every existing object as a creation, then with every new entry, at once or when it is
        committed. An entry that is rolled back is passed again to the followers (not `committed`) with `record` and
        `previous` exchanged."""
        for name, store in self._stores.items():
            for key, record in store.records.items():
                follower(LogEntry(record.revision, name, key, record, None))
        (self._listeners if committed else self._followers).append(follower)

    def get(self, store: str, key: NamespacedName) -> Record | None:
        """The latest record of the key, None when it does not exist."""
        return self._stores[store].records.get(key) if store in self._stores else None

    def append(
        self, store: str, key: NamespacedName, record: Record | None, expect: int, last: bytes = b""
    ) -> LogEntry:
        """Write `record` (None deletes) over revision `expect` (0: the object must not exist), at the next revision.
        Raises RevisionConflict; NotWritten without an event loop."""
        before = self.get(store, key)
        if (before.revision if before else 0) != expect:
            raise RevisionConflict(f"{store} {key} is not at revision {expect}")
        entry = LogEntry(self.revision + 1, store, key, record, before, last)
        if record is not None and record.revision != entry.revision:
            raise RevisionConflict(f"the record says {record.revision}, the log is at {self.revision}")
        self._put(store, key, record)
        self._entries.append(entry)
        for follower in self._followers:
            follower(entry)
        self._bytes += _size(entry)
        self._keep(entry)
        if len(self._entries) >= 2 * self._keep_entries:
            self.compact(self.revision - self._keep_entries)
        elif self._bytes > self._keep_max_bytes and len(self._entries) > 1:
            # In small steps: by half, 16 MB would be taken and given back all the time, and the heap be fragmented.
            self.compact(self.floor + max(1, len(self._entries) // 32))
        return entry

    def after(self, revision: int, most: int | None = None) -> Entries:
        """The entries after that revision, oldest first, at most `most`. Raises Compacted, FutureRevision."""
        start = self._index_after(revision)
        return self._entries[start : None if most is None else start + most]

    def list(self, store: str, revision: int = 0) -> Objects:
        """All objects of a store, sorted by key; at `revision` when it is not 0. Raises Compacted, FutureRevision."""
        keys, records = self.view(store, revision)
        return [(key, records[key]) for key in keys]

    def view(self, store: str, revision: int = 0, label: Label | None = None) -> View:
        """The same as a view, without a copy. With `label`, objects without that label may be left out (label
        index)."""
        current = self._stores.get(store) or ObjectStore()
        changed: dict[NamespacedName, Record | None] = {}
        for entry in self._entries[self._index_after(revision) :] if revision else ():
            if entry.store == store:
                changed.setdefault(entry.key, entry.previous)
        if not changed:
            return current.view_by_label(label) if label else current.view()
        records = {key: record for key, record in {**current.records, **changed}.items() if record is not None}
        return View(sorted(records), records)

    def compact(self, floor: int) -> None:
        """Remove the entries up to that revision from the history, committed ones only. Objects are not affected."""
        floor = min(floor, self.committed)
        if floor > self.floor:
            self._bytes -= sum(_size(entry) for entry in self._entries[: floor - self.floor])
            del self._entries[: floor - self.floor]
            self.floor = floor

    def _keep(self, entry: LogEntry) -> None:
        """Store a new entry; in memory it is committed at once."""
        for listener in self._listeners:
            listener(entry)

    def _take_back(self, entry: LogEntry) -> None:
        """Roll back the last entry."""
        self._put(entry.store, entry.key, entry.previous)
        self._bytes -= _size(self._entries.pop())

    def _index_after(self, revision: int) -> int:
        if revision < self.floor:
            raise Compacted(f"revision {revision} is older than {self.floor}")
        if revision > self.revision:
            raise FutureRevision(f"revision {revision} is newer than {self.revision}")
        return revision - self.floor

    def _put(self, store: str, key: NamespacedName, record: Record | None) -> None:
        if store not in self._stores:
            self._stores[store] = ObjectStore()
        self._stores[store].put(key, record)


def _size(entry: LogEntry) -> int:
    return len(entry.last_state) + (len(entry.record.body) if entry.record else 0)
