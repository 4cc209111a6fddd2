"""The embedded API server as one thing to start and stop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from trainyard.controller_runtime.tasks import TaskSupervisor
from trainyard.server.admission import Checks
from trainyard.server.connections import factory, serving
from trainyard.server.doors import Doors, loopback
from trainyard.server.furnishing import furnish
from trainyard.server.http import Http
from trainyard.server.limits import Limits
from trainyard.server.log import Log
from trainyard.server.resources import Registry
from trainyard.server.strategies import BUILT_IN
from trainyard.server.verbs import Verbs
from trainyard.server.watching import BOOKMARK_EVERY, Hub

STOP_SECONDS = 1.0  # in which what has been asked may still be answered


class Server:
    """A Kubernetes API in this process, on loopback only.

    `checks` are cross-field rules by (group, kind): functions of (new, old or None) that return problems. `verbs`
    counts the requests: ("patch", "pods/status"). `key` signs the tokens of ServiceAccounts; without one they die with
    this server.
    """

    def __init__(
        self,
        checks: Checks | None = None,
        token: str = "",
        now: Callable[[], float] = time.time,
        log: Log | None = None,
        limits: Limits | None = None,
        kubelet_token: str = "",
        key: bytes = b"",
        report: Callable[[str], object] | None = None,
    ) -> None:
        self.log = Log() if log is None else log
        self.registry = Registry(BUILT_IN)
        self.hub = Hub(self.log)
        self._verbs = Verbs(self.log, self.registry, checks or {}, now, key)
        self._limits = limits or Limits()
        self.kubelet_token = kubelet_token or token
        """What the nodes ask this server for: it should open nothing else."""
        self._http = Http(self._verbs, self.hub, token, self.kubelet_token, self._limits)
        self._connections: web.Server | None = None
        self._doors: Doors | None = None
        self.tasks = TaskSupervisor("API server", report)
        self.url = ""
        self.tls_url = ""

    @property
    def verbs(self) -> Counter[tuple[str, str]]:
        return self._verbs.counts

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serves on `url` from here on, for this machine's own. Raises ValueError for an address others could reach."""
        await loopback(host)
        await self.open()
        self.url = f"http://{await self._opened().listen(host, port, None)}"

    async def open(self) -> None:
        """Serves from here on, but nobody outside this process: `dial`, and `start_tls` for the others."""
        furnish(self._verbs.answer)
        self.verbs.clear()
        await self.log.durable(self.log.revision)
        self._connections = connections = serving(self._http)
        self._doors = Doors(factory(connections, self._limits), lambda: len(connections.connections), self._limits)
        self.tasks.start("send bookmarks and expire events", self._tick)

    async def start_tls(self, context: ssl.SSLContext, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serves on `tls_url`, too: what kubectl and pods use. From here on pods get tokens for it."""
        await loopback(host)
        self.tls_url = f"https://{await self._opened().listen(host, port, context)}"
        self._verbs.reachable = True

    def dial(self) -> socket.socket:
        """A connection to this server that has no address: for the parts in this process."""
        if self._doors is None:
            raise ConnectionRefusedError("the API server in this process is not up")
        return self._doors.dial()

    def _opened(self) -> Doors:
        if self._doors is None:
            raise RuntimeError("the server has not been started")
        return self._doors

    async def stop(self) -> None:
        """Ends all watches, then the rest, within a few seconds whatever the clients do. Twice is once."""
        doors, self._doors = self._doors, None
        if doors is not None:
            await doors.close()
        self.hub.end_all("the server stops")
        self._http.end_tunnels()
        await self.tasks.stop()
        connections, self._connections = self._connections, None
        if connections is not None:
            await asyncio.sleep(0)  # what has just come in begins, so that it can be waited for
            connections.pre_shutdown()
            await connections.shutdown(STOP_SECONDS)
        await self._http.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_EVERY)
            self._verbs.expire()
            self.hub.bookmarks()
