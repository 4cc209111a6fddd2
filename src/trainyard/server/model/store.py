"""Stored objects: the records, an entry of the log, and the objects of one resource by key, sorted, and by label.

The sorted order and the label indexes are built at their first use and then maintained: a client that lists by a label
does so again, and reads only the objects with that label. Labels that are never selected cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from trainyard.objects import NamespacedName

MAX_LABEL_INDEXES = 8  # label indexes of one resource; the oldest is dropped for a new one

Keys = list[NamespacedName]
Label = tuple[str, str]


class Record(NamedTuple):
    """A stored object. `labels` and `fields` are for selectors; they are computed once, at the write."""

    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]


def next_key(key: NamespacedName) -> NamespacedName:
    """The smallest key after that one."""
    return NamespacedName(key.namespace, f"{key.name}\0")


class View(NamedTuple):
    """A view of objects, valid until the next write: sorted keys, and the records of these."""

    keys: Keys
    records: Mapping[NamespacedName, Record]

    def keys_in(self, namespace: str, start: NamespacedName | None = None) -> Keys:
        """The keys in a namespace ("": all namespaces), from `start` on."""
        least = NamespacedName(namespace, "")
        first = bisect_left(self.keys, max(start, least) if start else least)
        return self.keys[first : bisect_left(self.keys, NamespacedName(f"{namespace}\0", "")) if namespace else None]


class LogEntry(msgspec.Struct):
    """One write. `record` is None for a deletion; `last_state` is then the last state of the object, with the revision
    of the deletion."""

    revision: int
    store: str
    key: NamespacedName
    record: Record | None
    previous: Record | None
    last_state: bytes = b""
    # Encoded watch events of this entry, by (view, event type).
    encoded_events: dict[object, bytes] = msgspec.field(default_factory=dict)


class ObjectReader(Protocol):
    """What strategies may do with the storage: read it. `store` names a resource ("pods", "jobs.batch")."""

    def get(self, store: str, key: NamespacedName) -> Record | None:
        """The latest record of the key, None when it does not exist."""

    def list(self, store: str) -> list[tuple[NamespacedName, Record]]:
        """All objects of a store, sorted by key."""


class ObjectStore:
    """The objects of one resource. `records` is read-only for callers; `put` changes it."""

    def __init__(self) -> None:
        self.records: dict[NamespacedName, Record] = {}
        self._keys: Keys | None = None
        self._by_label: dict[str, dict[str, set[NamespacedName]]] = {}

    def put(self, key: NamespacedName, record: Record | None) -> None:
        """Set the record of a key; None removes it."""
        before = self.records.get(key)
        if record is not None:
            self.records[key] = record
        elif before is not None:
            del self.records[key]
        if self._keys is not None and before is None and record is not None:
            insort(self._keys, key)
        elif self._keys is not None and before is not None and record is None:
            del self._keys[bisect_left(self._keys, key)]
        for name, index in self._by_label.items():
            _reindex(
                index, key, before.labels.get(name) if before else None, record.labels.get(name) if record else None
            )

    def view(self) -> View:
        """All objects."""
        if self._keys is None:
            self._keys = sorted(self.records)
        return View(self._keys, self.records)

    def view_by_label(self, label: Label) -> View:
        """The objects with that label value."""
        name, value = label
        if name not in self._by_label:
            if len(self._by_label) >= MAX_LABEL_INDEXES:
                del self._by_label[next(iter(self._by_label))]
            index = self._by_label[name] = {}
            for key, record in self.records.items():
                _reindex(index, key, None, record.labels.get(name))
        return View(sorted(self._by_label[name].get(value, ())), self.records)


def _reindex(
    index: dict[str, set[NamespacedName]], key: NamespacedName, old_value: str | None, new_value: str | None
) -> None:
    """Move a key from one label value to another in an index. None: the object does not have the label."""
    if old_value == new_value:
        return
    if old_value is not None:
        index[old_value].discard(key)
        if not index[old_value]:
            del index[old_value]
    if new_value is not None:
        index.setdefault(new_value, set()).add(key)
