"""Indexes of objects by their labels, and of selectors by the labels that they need.

A job with N replicas has N pods and up to N Services: trying each selector on each pod takes N x N steps for one round
of changes. Here a lookup takes only the entries that share one pair of label and value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.objects import NamespacedName

_Pair = tuple[str, str, str]  # namespace, label, value


class LabelIndex:
    """The keys of objects by their labels."""

    def __init__(self) -> None:
        self._keys: dict[_Pair, dict[NamespacedName, None]] = {}  # dicts are sets with an order
        self.tried = 0  # keys that were compared with a selector, for tests

    def update(self, key: NamespacedName, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """The labels of an object have changed; {} where there is no object."""
        for pair in _pairs(key.namespace, before):
            _discard(self._keys, pair, key)
        for pair in _pairs(key.namespace, after):
            self._keys.setdefault(pair, {})[key] = None

    def candidates(self, namespace: str, selector: Mapping[str, str]) -> Iterator[NamespacedName]:
        """Keys of all objects that have the labels of `selector`, and maybe of others that have only one of them; none
        for an empty selector."""
        buckets = [self._keys.get(pair, {}) for pair in _pairs(namespace, selector)]
        for key in list(min(buckets, key=len) if buckets else ()):
            self.tried += 1
            yield key


class SelectorIndex:
    """The keys of selectors by one pair of label and value of each: the one that the fewest selectors before it have,
    so that the Services of the replicas of one job do not all stand under the job's label."""

    def __init__(self) -> None:
        self._keys: dict[_Pair, dict[NamespacedName, None]] = {}
        self._pairs: dict[NamespacedName, _Pair] = {}
        self.tried = 0  # selectors that were compared with labels, for tests

    def update(self, key: NamespacedName, selector: Mapping[str, str]) -> None:
        """Set the selector of this key; {} removes it."""
        if (pair := self._pairs.pop(key, None)) is not None:
            _discard(self._keys, pair, key)
        if pairs := _pairs(key.namespace, selector):
            self._pairs[key] = pair = min(pairs, key=lambda candidate: len(self._keys.get(candidate, ())))
            self._keys.setdefault(pair, {})[key] = None

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[NamespacedName]:
        """Keys of all selectors that select an object with these labels, and maybe of others; each once."""
        for pair in _pairs(namespace, labels):
            for key in list(self._keys.get(pair, ())):
                self.tried += 1
                yield key


def _pairs(namespace: str, labels: Mapping[str, str]) -> list[_Pair]:
    return [(namespace, name, str(value)) for name, value in labels.items()]


def _discard(keys: dict[_Pair, dict[NamespacedName, None]], pair: _Pair, key: NamespacedName) -> None:
    bucket: dict[NamespacedName, None] = keys.get(pair, {})
    bucket.pop(key, None)
    if not bucket:
        keys.pop(pair, None)
