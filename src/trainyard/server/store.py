"""The objects of one resource as they are now: by their keys, in the order of these, and by a label.

The order is kept from the time when somebody has asked for it, and so is what has a label: a program that lists by a
label does so again, and finds few of many without a look at the others. A name that nobody asks for costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple

from trainyard.objects import Key

NAMES = 8  # labels by which the objects of one resource are kept; the eldest is forgotten

Keys = list[Key]
Label = tuple[str, str]


class Record(NamedTuple):
    """An object as it is stored. `labels` and `fields` are what selectors ask for, read once, when it was written."""

    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]


def following(key: Key) -> Key:
    """The least key after that one."""
    return Key(key.namespace, f"{key.name}\0")


class View(NamedTuple):
    """Objects, to be read before anything else is written: their keys in order, and what these stand for."""

    keys: Keys
    records: Mapping[Key, Record]

    def within(self, namespace: str, start: Key | None = None) -> Keys:
        """The keys of that namespace ("": of all), those before `start` left out."""
        least = Key(namespace, "")
        first = bisect_left(self.keys, max(start, least) if start else least)
        return self.keys[first : bisect_left(self.keys, Key(f"{namespace}\0", "")) if namespace else None]


class Store:
    """`records` is to be read only; `put` changes it."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self._keys: Keys | None = None
        self._labelled: dict[str, dict[str, set[Key]]] = {}

    def put(self, key: Key, record: Record | None) -> None:
        """That object from now on. None: there is none."""
        before = self.records.get(key)
        if record is not None:
            self.records[key] = record
        elif before is not None:
            del self.records[key]
        if self._keys is not None and before is None and record is not None:
            insort(self._keys, key)
        elif self._keys is not None and before is not None and record is None:
            del self._keys[bisect_left(self._keys, key)]
        for name, kept in self._labelled.items():
            _move(kept, key, before.labels.get(name) if before else None, record.labels.get(name) if record else None)

    def view(self) -> View:
        """All of them."""
        if self._keys is None:
            self._keys = sorted(self.records)
        return View(self._keys, self.records)

    def labelled(self, label: Label) -> View:
        """Those that have this value of this label."""
        name, value = label
        if name not in self._labelled:
            if len(self._labelled) >= NAMES:
                del self._labelled[next(iter(self._labelled))]
            kept = self._labelled[name] = {}
            for key, record in self.records.items():
                _move(kept, key, None, record.labels.get(name))
        return View(sorted(self._labelled[name].get(value, ())), self.records)


def _move(kept: dict[str, set[Key]], key: Key, old: str | None, new: str | None) -> None:
    """From the objects with one value of a label to those with another. None: the object has no such label."""
    if old == new:
        return
    if old is not None:
        kept[old].discard(key)
        if not kept[old]:
            del kept[old]
    if new is not None:
        kept.setdefault(new, set()).add(key)
