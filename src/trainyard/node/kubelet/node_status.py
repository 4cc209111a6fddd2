"""The updates of the Node object, which the node controller writes, too.

Rules:
- The status is written at each heartbeat, when the health of the node has changed, and when the object is not Ready or
  deleted: the node controller sets Ready to Unknown without heartbeats.
- The Node's Lease is renewed more often, by the process that joins the node (app/node_agent.py).
- Updates are sequential; a refused update is retried until it is written or the node leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainyard.client import ApiError
from trainyard.controller_runtime import TaskSupervisor
from trainyard.objects import Json, is_condition_true

log = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 300.0  # seconds between two updates of the Node's status; its Lease is renewed more often
_RETRY_SECONDS = 1.0


class NodeStatusUpdater:
    """`register` writes the Node object and may raise ApiError; `is_active` returns True while the node runs."""

    def __init__(
        self, register: Callable[[], Awaitable[None]], is_active: Callable[[], bool], tasks: TaskSupervisor
    ) -> None:
        self._register, self._is_active, self._tasks = register, is_active, tasks
        self._update: asyncio.Task[None] | None = None
        self._stale = False  # the status of the Node object is still to be written
        self._leaving = False

    async def heartbeat(self) -> None:
        """Refresh the Node's conditions at a fixed interval, for ever."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            self.refresh()

    def on_listed(self, nodes: list[Json]) -> None:
        """The list of the watch of this Node: [] when the Node does not exist."""
        if nodes:
            self.on_changed("MODIFIED", nodes[0])
        else:
            self.on_changed("DELETED", {})

    def on_changed(self, verb: str, node: Json) -> None:
        """An event of the watch of this Node: write the status again when the Node is gone or not Ready."""
        ready = is_condition_true((node.get("status") or {}).get("conditions"), "Ready")
        if verb == "DELETED" or not ready:
            self.refresh()

    def leave(self) -> None:
        """No more updates: the node is drained, and its Node object is written as not ready."""
        self._leaving = True

    def refresh(self) -> None:
        """Write the Node object, now or after the update in progress."""
        if self._leaving or not self._is_active():
            return
        self._stale = True
        if self._update is None or self._update.done():
            self._update = self._tasks.spawn("renew the Node", self._write())

    async def _write(self) -> None:
        while self._stale and not self._leaving:
            try:
                self._stale = False
                await self._register()
            except ApiError as error:
                self._stale = True
                log.warning("the node status could not be written, retrying error=%s", error)
                await asyncio.sleep(_RETRY_SECONDS)
