"""The handlers of the watch of Services: keep those of the directory current and let the pod network adapt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.network.directory import Directory
from trainyard.node.network.pod_network import Network
from trainyard.objects import Json, key_of


class ServiceWatch:
    """`network` returns the pod network, None while the node does not run."""

    def __init__(self, directory: Directory, network: Callable[[], Network | None], tasks: TaskSupervisor) -> None:
        self._directory, self._network, self._tasks = directory, network, tasks
        self._outdated = False  # the network has not adapted to the last change yet
        self._update: asyncio.Task[None] | None = None

    def on_listed(self, services: list[Json]) -> None:
        """The list of the watch: replaces all known Services."""
        self._directory.replace_services(services)
        self._adapt()

    def on_changed(self, verb: str, service: Json) -> None:
        """One event of the watch."""
        if verb == "DELETED":
            self._directory.remove_service(key_of(service))
        else:
            self._directory.set_service(service)
        self._adapt()

    def pod_added(self) -> None:
        """A pod has an address now; in the shared network a Service of its name needs no forwarder any more."""
        network = self._network()
        if network and not network.isolated_network:
            self._adapt()  # a Service with this pod's name is no longer forwarded

    def _adapt(self) -> None:
        """Let the network adapt, in one task: changes that come while it adapts are applied together afterwards."""
        self._outdated = True
        if self._network() and (self._update is None or self._update.done()):
            self._update = self._tasks.spawn("update Services", self._update_network())

    async def _update_network(self) -> None:
        while self._outdated and (network := self._network()):
            self._outdated = False
            await network.services_changed()
