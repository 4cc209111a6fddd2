"""When a server is quiet: nothing has been written for a while, by anybody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from contextlib import aclosing

from trainyard.client import ApiClient, Gone
from trainyard.objects import GVK, Json, decode, namespace_of, uid_of

LOOK = 0.1  # seconds between two looks at the times
UNSEEN = ("resourceVersion", "managedFields", "generation")


class Writes:
    """When something was last written in each namespace, by watches on these resources.

    A write that changes nothing but `status.lastReconcileTime` does not count: operators write it with each reconcile,
    and some reconcile because of it.
    """

    def __init__(self, api: ApiClient, resources: Sequence[GVK]) -> None:
        self._api, self._resources = api, resources
        self._last: dict[str, float] = {}
        self._content: dict[str, Json] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        opened = [asyncio.Event() for _ in self._resources]
        for gvk, event in zip(self._resources, opened, strict=True):
            self._tasks.append(asyncio.create_task(self._watch(gvk, event)))
        async with asyncio.timeout(30):
            for event in opened:
                await event.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, gvk: GVK, opened: asyncio.Event) -> None:
        revision = ""
        while True:
            with contextlib.suppress(Gone):
                if not revision:
                    revision = (await self._api.list(gvk))["metadata"]["resourceVersion"]
                async with aclosing(self._api.watch(gvk, "", revision, on_open=opened.set)) as lines:
                    async for line in lines:
                        event = decode(line)
                        if event["type"] == "ERROR":
                            break
                        self._observe(event["type"], event["object"])
            revision = ""

    def _observe(self, kind: str, item: Json) -> None:
        metadata = {key: value for key, value in item["metadata"].items() if key not in UNSEEN}
        status = item.get("status")
        if isinstance(status, dict):
            status = {key: value for key, value in status.items() if key != "lastReconcileTime"}
        content = {**item, "metadata": metadata, "status": status}
        if kind == "DELETED":
            self._content.pop(uid_of(item), None)
        elif self._content.get(uid_of(item)) == content:
            return
        else:
            self._content[uid_of(item)] = content
        self._last[namespace_of(item)] = time.monotonic()

    async def settled(self, seconds: float, patience: float) -> set[str]:
        """Wait until nothing was written for so many seconds, but for `patience` at most. The namespaces in which
        something was written within that time."""
        begin = time.monotonic()
        while True:
            now = time.monotonic()
            restless = {namespace for namespace, last in self._last.items() if now - last < seconds}
            if (not restless and now - begin >= seconds) or now - begin >= patience:
                return restless
            await asyncio.sleep(LOOK)
