"""Watches of several resources at once: each has a store, and one event says that something has changed.

A server that comes back is followed on; one that has not answered for `PATIENCE` seconds is given up, because a person
waits who would never be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.client import Api, Selection, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import GVK, Json

PATIENCE = 20.0
APART = 60.0  # seconds between two failures that have nothing to do with each other
Seen = Callable[[Json | None, Json | None], object]


class Feeds:
    """Begin with `watch`, end with `stop`."""

    def __init__(self, api: Api, patience: float = PATIENCE) -> None:
        self._api = api
        self._patience = patience
        self._lost: Unavailable | None = None
        self.tasks = TaskSupervisor("watch")
        self._stores: list[Store[Json]] = []
        self.changed = asyncio.Event()

    @property
    def synced(self) -> bool:
        """True when every watch has told all there is."""
        return all(store.synced for store in self._stores)

    def watch(self, source: WatchTarget, seen: Seen = lambda before, after: None) -> Store[Json]:
        """Follow a resource; `seen` hears of each change."""
        store: Store[Json] = Store(dict_adapter(api_version=source.gvk.api_version, kind=source.gvk.kind))

        def apply(said: StoreEvent[Json]) -> None:
            for change in store.apply(said):
                seen(change.before, change.after)
            self.changed.set()

        self._stores.append(store)
        first = last = float("-inf")

        def unanswered(error: Unavailable) -> None:
            """Counts the time since the first of several failures in a row."""
            nonlocal first, last
            now = asyncio.get_running_loop().time()
            first, last = (
                now if now - last > APART or not feed.last_error else first,
                now,
            )  # no why: answered in between
            if now - first >= self._patience:
                self._lost = error
                self.changed.set()

        feed = Reflector(self._api, source, store.adapter, apply, unanswered)
        self.tasks.start(f"watch {source.name}", feed.run)
        return store

    async def next(self) -> None:
        """Wait until something has changed since the last time. Raises Unavailable when the server is given up."""
        await self.changed.wait()
        if self._lost is not None:
            raise self._lost
        self.changed.clear()

    async def stop(self) -> None:
        await self.tasks.stop()


def source(gvk: GVK, namespace: str, labels: str = "") -> WatchTarget:
    """A resource of a namespace ("" for all), which a cluster may not have."""
    return WatchTarget(gvk, namespace=namespace, selection=Selection(labels), optional=True)
