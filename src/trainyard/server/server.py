"""The embedded API server as one thing to start and stop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainyard.controller_runtime.tasks import TaskSupervisor
from trainyard.server.admission import Checks
from trainyard.server.doors import Doors, loopback
from trainyard.server.furnishing import furnish
from trainyard.server.guard import Guard
from trainyard.server.in_process import InProcess, NearKubelet
from trainyard.server.limits import Limits
from trainyard.server.log import Log
from trainyard.server.resources import Registry
from trainyard.server.strategies import BUILT_IN
from trainyard.server.verbs import Verbs
from trainyard.server.watching import BOOKMARK_EVERY, Hub

if TYPE_CHECKING:
    from trainyard.server.http import Http

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
        self._guard = Guard(token, self._verbs.tokens)
        self.kubelet: NearKubelet | None = None
        """The kubelet of the node in this process: logs are read from it without a connection."""
        self._loaded: Http | None = None
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
        """Serves from here on, but nobody outside this process: `in_process`, and `start_tls` for the others."""
        furnish(self._verbs.answer)
        self.verbs.clear()
        await self.log.durable(self.log.revision)
        self._doors = Doors(
            lambda: self._http().connection(), lambda: self._loaded.count if self._loaded else 0, self._limits
        )
        self.tasks.start("send bookmarks and expire events", self._tick)

    async def start_tls(
        self, context: ssl.SSLContext | asyncio.Future[ssl.SSLContext], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Serves on `tls_url`, too: what kubectl and pods use. From here on pods get tokens for it.

        A `context` that is still being made keeps clients waiting, and nobody else.
        """
        await loopback(host)
        made = context if isinstance(context, asyncio.Future) else asyncio.get_running_loop().create_future()
        if isinstance(context, ssl.SSLContext):
            made.set_result(context)
        self.tls_url = f"https://{await self._opened().listen(host, port, made)}"
        self._verbs.reachable = True

    def in_process(self) -> InProcess:
        """A way to this server that has no address: for the parts in this process."""
        return InProcess(self._verbs, self.hub, self._guard, lambda: self.kubelet, lambda: self._doors is not None)

    def _http(self) -> Http:
        """What serves connections; loaded by the first: many a `trainyard run` ends before somebody connects."""
        if self._loaded is None:
            from trainyard.server.http import Http

            self._loaded = Http(self._verbs, self.hub, self._guard, self.kubelet_token, self._limits)
        return self._loaded

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
        await self.tasks.stop()
        http, self._loaded = self._loaded, None
        if http is not None:
            await http.close(STOP_SECONDS)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_EVERY)
            self._verbs.expire()
            self.hub.bookmarks()
