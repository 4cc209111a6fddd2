"""The cache of one resource, filled only by its reflector. A cached object is never edited: an update replaces it.

Rules for this file:
- `apply` takes a complete list, a watch event or a bookmark, and returns the changes: pairs (old object, new object),
  where None means that there is no such object.
- A relist replaces everything. For a cached object that is missing from the list a deletion is returned; for one with
  an unchanged resourceVersion nothing is returned.
- `revision` is the newest resourceVersion received: every event up to it has been applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from trainyard.controller_runtime.object_adapter import ObjectAdapter
from trainyard.controller_runtime.reflector import ListReplaced, ObjectChanged, RevisionAdvanced, StoreEvent, is_newer
from trainyard.objects import NamespacedName

T = TypeVar("T")


class Change(NamedTuple, Generic[T]):
    """An object before and after an update. If it was deleted and created again under its name, with another uid, one
    change has both."""

    before: T | None
    after: T | None


class Store(Generic[T]):
    """Objects by key (namespace and name), by uid, and by the index value of their adapter (e.g. the owner's uid)."""

    def __init__(self, adapter: ObjectAdapter[T]) -> None:
        self.adapter = adapter
        self.synced = False  # true once a complete list has been applied
        self.revision = ""
        self.list_count = 0  # number of complete lists applied
        # The keys are strings that the objects hold anyway: 100,000 tuples of them would be 9 MB.
        self._objs: dict[str, dict[str, T]] = {}  # namespace -> name -> object
        self._by_uid: dict[str, T] = {}
        self._by_index: dict[str, dict[str, T]] = {}  # index value -> uid -> object

    def __len__(self) -> int:
        return sum(map(len, self._objs.values()))

    def __iter__(self) -> Iterator[T]:
        return iter([obj for objs in self._objs.values() for obj in objs.values()])

    def get(self, key: NamespacedName) -> T | None:
        """The object with this key, None when it does not exist or the store has not received it yet."""
        return self._objs.get(key.namespace, {}).get(key.name)

    def by_uid(self, uid: str) -> T | None:
        """The object with this uid, None when it does not exist or the store has not received it yet."""
        return self._by_uid.get(uid)

    def by_index(self, index: str) -> tuple[T, ...]:
        """The objects with this index value, in the order of their last updates."""
        return tuple(self._by_index.get(index, {}).values())

    def has_reached(self, revision: str) -> bool:
        """True when every change up to this resourceVersion has certainly been applied."""
        return self.synced and bool(self.revision) and not is_newer(revision, self.revision)

    def apply(self, event: StoreEvent[T]) -> list[Change[T]]:
        """Apply an update of the reflector. Returns the changes, in the order in which they were applied."""
        match event:
            case ListReplaced(objs, revision):
                changes = self._replace(objs)
                self.revision, self.synced, self.list_count = revision, True, self.list_count + 1
                return changes
            case ObjectChanged(event_type, obj, revision):
                self.revision = revision
                key = self.adapter.key(obj)
                return [self._set(key, None if event_type == "DELETED" else obj)]
            case RevisionAdvanced(revision):
                self.revision = revision
        return []

    def _replace(self, objs: tuple[T, ...]) -> list[Change[T]]:
        adapter = self.adapter
        listed = set(map(adapter.key, objs)) if self._objs else set()
        gone = [key for key in map(adapter.key, self) if key not in listed]
        changes = [self._set(key, None) for key in gone]
        for obj in objs:
            key = adapter.key(obj)
            before = self.get(key)
            if before is None or not self._same_version(before, obj):
                changes.append(self._set(key, obj))
        return changes

    def _same_version(self, before: T, after: T) -> bool:
        adapter = self.adapter
        revision = adapter.revision(before)
        return bool(revision) and revision == adapter.revision(after) and adapter.uid(before) == adapter.uid(after)

    def _set(self, key: NamespacedName, after: T | None) -> Change[T]:
        adapter = self.adapter
        before = self.get(key)
        uid, index = ("", "") if after is None else (adapter.uid(after), adapter.index(after))
        if before is not None and (after is None or adapter.uid(before) != uid or adapter.index(before) != index):
            self._by_uid.pop(adapter.uid(before), None)
            _remove(self._objs, key.namespace, key.name)
            _remove(self._by_index, adapter.index(before), adapter.uid(before))
        if after is not None:
            self._objs.setdefault(key.namespace, {})[key.name] = after
            self._by_uid[uid] = after
            self._by_index.setdefault(index, {})[uid] = after
        return Change(before, after)


def _remove(table: dict[str, dict[str, T]], group: str, name: str) -> None:
    """Remove an object, and its group when that is empty."""
    objs = table.get(group, {})
    objs.pop(name, None)
    if not objs:
        table.pop(group, None)
