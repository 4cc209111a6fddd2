"""Watches of several resources at once: each has a store, and one event says that something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.client import Api, Selection
from trainyard.control import Feed, Source, Store, plain
from trainyard.control.watch import Said
from trainyard.objects import GVK, Json

Seen = Callable[[Json | None, Json | None], object]


class Feeds:
    """Begin with `watch`, end with `stop`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._tasks: list[asyncio.Task[None]] = []
        self._stores: list[Store[Json]] = []
        self.changed = asyncio.Event()

    @property
    def synced(self) -> bool:
        """True when every watch has told all there is."""
        return all(store.synced for store in self._stores)

    def watch(self, source: Source, seen: Seen = lambda before, after: None) -> Store[Json]:
        """Follow a resource; `seen` hears of each change."""
        store: Store[Json] = Store(plain(api_version=source.gvk.api_version, kind=source.gvk.kind))

        def apply(said: Said[Json]) -> None:
            for change in store.apply(said):
                seen(change.before, change.after)
            self.changed.set()

        self._stores.append(store)
        self._tasks.append(asyncio.create_task(Feed(self._api, source, store.view, apply).run()))
        return store

    async def next(self) -> None:
        """Wait until something has changed since the last time."""
        await self.changed.wait()
        self.changed.clear()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def source(gvk: GVK, namespace: str, labels: str = "") -> Source:
    """A resource of a namespace ("" for all), which a cluster may not have."""
    return Source(gvk, namespace=namespace, which=Selection(labels), optional=True)
