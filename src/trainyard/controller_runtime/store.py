"""The cache of one resource, filled only by its watch. Cached objects are never edited: an update replaces the object.

Rules for this file:
- `apply` takes a list, a watch event or a bookmark and returns the changes: (old object, new object); None: no object.
- A relist replaces everything. An object missing from the list is a change; one at the same resourceVersion is none.
- `revision` is the newest resourceVersion received: every event up to it has been applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from trainyard.controller_runtime.object_adapter import ObjectAdapter
from trainyard.controller_runtime.reflector import Changed, Moved, Replaced, StoreEvent, is_newer
from trainyard.objects import Key

T = TypeVar("T")


class Change(NamedTuple, Generic[T]):
    """One object before and after. A name taken over by a new uid is one change with both."""

    before: T | None
    after: T | None


class Store(Generic[T]):
    """Objects by key, by uid, and by what their view indexes them by (the job's uid, the owner's uid)."""

    def __init__(self, adapter: ObjectAdapter[T]) -> None:
        self.adapter = adapter
        self.synced = False
        self.revision = ""
        self.lists = 0  # how many whole lists have been taken in
        self._objs: dict[Key, T] = {}
        self._by_uid: dict[str, T] = {}
        self._by_index: dict[str, dict[Key, T]] = {}

    def __len__(self) -> int:
        return len(self._objs)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objs.values()))

    def get(self, key: Key) -> T | None:
        return self._objs.get(key)

    def by_uid(self, uid: str) -> T | None:
        return self._by_uid.get(uid)

    def by_index(self, index: str) -> tuple[T, ...]:
        """The objects with this index value, in the order of their last change."""
        return tuple(self._by_index.get(index, {}).values())

    def has_reached(self, revision: str) -> bool:
        """True when everything up to that revision has certainly been taken in."""
        return self.synced and bool(self.revision) and not is_newer(revision, self.revision)

    def apply(self, event: StoreEvent[T]) -> list[Change[T]]:
        """Take in what the watch says; return what changed."""
        match event:
            case Replaced(objs, revision):
                changes = self._replace(objs)
                self.revision, self.synced, self.lists = revision, True, self.lists + 1
                return changes
            case Changed(verb, obj, revision):
                self.revision = revision
                key = self.adapter.key(obj)
                return [self._set(key, None if verb == "DELETED" else obj)]
            case Moved(revision):
                self.revision = revision
        return []

    def _replace(self, objs: tuple[T, ...]) -> list[Change[T]]:
        listed = {self.adapter.key(obj): obj for obj in objs}
        changes = [self._set(key, None) for key in self._objs.keys() - listed.keys()]
        for key, obj in listed.items():
            before = self._objs.get(key)
            if before is None or not self._same_version(before, obj):
                changes.append(self._set(key, obj))
        return changes

    def _same_version(self, one: T, other: T) -> bool:
        view = self.adapter
        revision = view.revision(one)
        return bool(revision) and revision == view.revision(other) and view.uid(one) == view.uid(other)

    def _set(self, key: Key, after: T | None) -> Change[T]:
        before = self._objs.pop(key, None)
        if before is not None:
            self._by_uid.pop(self.adapter.uid(before), None)
            index = self.adapter.index(before)
            siblings = self._by_index[index]
            del siblings[key]
            if not siblings:
                del self._by_index[index]
        if after is not None:
            self._objs[key] = after
            self._by_uid[self.adapter.uid(after)] = after
            self._by_index.setdefault(self.adapter.index(after), {})[key] = after
        return Change(before, after)
