"""The objects of a server, by watches; and when it is quiet: nothing has been written for a while, by anybody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from trainyard.client import ApiClient, Gone
from trainyard.objects import GVK, Json, decode, name_of, namespace_of

ByNamespace = defaultdict[str, dict[str, Json]]  # the objects of a resource by namespace and name
LOOK = 0.1  # seconds between two looks at the times
ROUND_TRIPS = 2
Probe = Callable[[], Awaitable[float]]
UNSEEN = ("resourceVersion", "managedFields", "generation")


class Objects:
    """All objects of some resources, as the server has them, and when something was last written in each namespace.

    A write that changes nothing but `status.lastReconcileTime` does not count: operators write it with each reconcile,
    and some reconcile because of it.
    """

    def __init__(self, api: ApiClient, resources: Sequence[GVK]) -> None:
        self._api = api
        self._last: dict[str, float] = {}
        self._objects: dict[GVK, ByNamespace] = {gvk: defaultdict(dict) for gvk in resources}
        self._tasks: list[asyncio.Task[None]] = []
        self._round_trip = 0.0  # seconds

    def items(self, gvk: GVK, namespace: str) -> list[Json]:
        """In the order of their names, as in a list. Use after `settled`: the watches are then up to date."""
        objects = self._objects[gvk][namespace]
        return [objects[name] for name in sorted(objects)]

    async def start(self) -> None:
        opened = [asyncio.Event() for _ in self._objects]
        for gvk, event in zip(self._objects, opened, strict=True):
            self._tasks.append(asyncio.create_task(self._watch(gvk, event)))
        async with asyncio.timeout(30):
            for event in opened:
                await event.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, gvk: GVK, opened: asyncio.Event) -> None:
        while True:
            listed = await self._api.list(gvk)
            objects: ByNamespace = defaultdict(dict)
            for item in listed["items"]:
                objects[namespace_of(item)][name_of(item)] = _with_type(item, gvk)
            self._objects[gvk] = objects
            revision = listed["metadata"]["resourceVersion"]
            with contextlib.suppress(Gone):
                async with aclosing(self._api.watch(gvk, "", revision, on_open=opened.set)) as lines:
                    async for line in lines:
                        event = decode(line)
                        if event["type"] == "ERROR":
                            break
                        self._observe(gvk, event["type"], event["object"])

    def _observe(self, gvk: GVK, kind: str, item: Json) -> None:
        namespace, name = namespace_of(item), name_of(item)
        objects = self._objects[gvk][namespace]
        before = objects.pop(name, None)
        if kind != "DELETED":
            objects[name] = item
            if before is not None and _content(before) == _content(item):
                return
        self._last[namespace] = time.monotonic()

    async def settled(self, seconds: float, patience: float, probe: Probe, ignored: str = "") -> frozenset[str]:
        """Wait until nothing was written for so many seconds, and for two round trips of the probe; or for `patience`
        nothing but in the same namespaces, which are returned: their operator writes for ever.

        The probe returns how long it took. On a busy machine that is long, and so is the time without a write that is
        waited for. Writes in the namespace `ignored`, which is the probe's, do not count.
        """
        busy: frozenset[str] | None = None
        since, trips = 0.0, 0
        while True:
            now, unchanged_for = time.monotonic(), max(seconds, ROUND_TRIPS * self._round_trip)
            current = frozenset(namespace for namespace, last in self._last.items() if now - last < unchanged_for) - {
                ignored
            }
            if current != busy:
                busy, since, trips = current, now, 0
            if busy and now - since < patience:
                await asyncio.sleep(LOOK)
            elif trips < ROUND_TRIPS:
                self._round_trip = await probe()
                trips += 1
            else:
                return busy


def _with_type(item: Json, gvk: GVK) -> Json:
    """The members of a list have no apiVersion and kind."""
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, **item}


def _content(item: Json) -> Json:
    metadata = {key: value for key, value in item["metadata"].items() if key not in UNSEEN}
    status = item.get("status")
    if isinstance(status, dict):
        status = {key: value for key, value in status.items() if key != "lastReconcileTime"}
    return {**item, "metadata": metadata, "status": status}
