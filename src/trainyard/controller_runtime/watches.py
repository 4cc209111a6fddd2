"""Watches of several resources at once: each has a store, and one asyncio event signals a change in any of them.

After a failure the watches reconnect. When the API server has not answered for `UNAVAILABLE_TIMEOUT` seconds,
`wait_for_change` raises Unavailable, so that an interactive command does not wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.client import ApiClient, Selectors, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import GVK, Json

UNAVAILABLE_TIMEOUT = 20.0
OUTAGE_GAP = 60.0  # failures that are more seconds apart than this are not counted as one outage
ChangeHandler = Callable[[Json | None, Json | None], object]


class Watches:
    """Several reflectors with their stores. Call `watch` for each resource, then `wait_for_change` repeatedly, finally
    `stop`."""

    def __init__(
        self, api: ApiClient, patience: float = UNAVAILABLE_TIMEOUT, tasks: TaskSupervisor | None = None
    ) -> None:
        self._api = api
        self._patience = patience
        self._unavailable: Unavailable | None = None
        self.tasks = tasks or TaskSupervisor("watch")
        self._stores: list[Store[Json]] = []
        self._refused: set[int] = set()  # the positions in `_stores` of what the API server refuses
        self.changed = asyncio.Event()

    @property
    def synced(self) -> bool:
        """True when the initial list of every watch is in its store."""
        return all(store.synced for store in self._stores)

    @property
    def settled(self) -> bool:
        """As `synced`, but a resource that the API server refuses is not waited for."""
        return all(store.synced or number in self._refused for number, store in enumerate(self._stores))

    def watch(
        self,
        target: WatchTarget,
        on_change: ChangeHandler = lambda before, after: None,
        on_refused: Callable[[str], None] = lambda message: None,
    ) -> Store[Json]:
        """List and watch a resource; `on_change` is called with the object before and after each change, `on_refused`
        with the message of an answer that refuses the request."""
        store: Store[Json] = Store(dict_adapter(api_version=target.gvk.api_version, kind=target.gvk.kind))

        def apply(event: StoreEvent[Json]) -> None:
            for change in store.apply(event):
                on_change(change.before, change.after)
            self.changed.set()

        number = len(self._stores)
        self._stores.append(store)

        def refuse(message: str) -> None:
            self._refused.add(number)
            self.changed.set()
            on_refused(message)

        first_failure = last_failure = float("-inf")

        def on_unavailable(error: Unavailable) -> None:
            """Count the time since the first of several failures in a row."""
            nonlocal first_failure, last_failure
            now = asyncio.get_running_loop().time()
            # last_error is empty when the server has answered since the last failure.
            first_failure, last_failure = (
                now if now - last_failure > OUTAGE_GAP or not reflector.last_error else first_failure,
                now,
            )
            if now - first_failure >= self._patience:
                self._unavailable = error
                self.changed.set()

        reflector = Reflector(self._api, target, store.adapter, apply, on_unavailable, refuse)
        self.tasks.start(f"watch {target.name}", reflector.run)
        return store

    async def wait_for_change(self) -> None:
        """Wait for a change since the last call. Raises Unavailable after `patience` seconds without an answer."""
        await self.changed.wait()
        if self._unavailable is not None:
            raise self._unavailable
        self.changed.clear()

    async def stop(self) -> None:
        """End all watches."""
        await self.tasks.stop()


def watch_target(gvk: GVK, namespace: str, labels: str = "") -> WatchTarget:
    """A watch target for a resource in a namespace ("" for all); the cluster need not serve the resource."""
    return WatchTarget(gvk, namespace=namespace, selection=Selectors(labels), optional=True)
