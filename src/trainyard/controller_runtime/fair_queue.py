"""A queue that is fair to namespaces and to the objects in them, such as jobs.

`pop` serves namespaces round-robin, the objects of a namespace round-robin, and the items of one object first in, first
out. So an object with one item waits for at most one item of each other object, however many these have.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by namespace and object uid."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()  # the first is served next

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def push(self, namespace: str, uid: str, item: T) -> None:
        """Append an item to the line of the object with this namespace and uid."""
        objects = self._namespaces.setdefault(namespace, OrderedDict())
        objects.setdefault(uid, deque()).append(item)

    def pop(self, accepts: Callable[[T], bool] = lambda item: True) -> T | None:
        """Remove and return the next item that `accepts`, of those that are first in their line; None when there is
        none."""
        for namespace, objects in self._namespaces.items():
            for uid, items in objects.items():
                if accepts(items[0]):
                    return self._pop_of(namespace, uid)
        return None

    def _pop_of(self, namespace: str, uid: str) -> T:
        objects = self._namespaces[namespace]
        items = objects[uid]
        item = items.popleft()
        if items:
            objects.move_to_end(uid)
        else:
            del objects[uid]
        if objects:
            self._namespaces.move_to_end(namespace)
        else:
            del self._namespaces[namespace]
        return item
