"""The embedded API server as one thing to start and stop."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from trainyard.objects import encode
from trainyard.server.admission import Checks
from trainyard.server.http import Http
from trainyard.server.log import Log
from trainyard.server.requests import Request
from trainyard.server.resources import Registry
from trainyard.server.strategies import BUILT_IN
from trainyard.server.verbs import Verbs
from trainyard.server.watching import BOOKMARK_EVERY, Hub

NAMESPACES_AT_START = ("default", "kube-system", "kube-public", "kube-node-lease")


class Server:
    """A Kubernetes API in this process, on loopback only.

    `checks` are cross-field rules by (group, kind): functions of (new, old or None) that return problems. `verbs`
    counts the requests: ("patch", "pods/status").
    """

    def __init__(
        self,
        checks: Checks | None = None,
        token: str = "",
        now: Callable[[], float] = time.time,
        log: Log | None = None,
    ) -> None:
        self.log = Log() if log is None else log
        self.registry = Registry(BUILT_IN)
        self.hub = Hub(self.log)
        self._verbs = Verbs(self.log, self.registry, checks or {}, now)
        self._http = Http(self._verbs, self.hub, token)
        self._runner: web.ServerRunner | None = None
        self._ticking: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def verbs(self) -> Counter[tuple[str, str]]:
        return self._verbs.counts

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Serves on `url` from here on. Raises ValueError for an address that others could reach."""
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"the embedded API server listens on loopback only, not on {host}; use 127.0.0.1")
        self._make_namespaces()
        server = web.Server(self._http, handler_cancellation=True, access_log=None, tcp_keepalive=False)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024, ssl_context=tls)
        await site.start()
        bound = self._runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"{'https' if tls else 'http'}://{name}:{bound[1]}"
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Ends all watches, then the rest. Twice is once."""
        self.hub.end_all("the server stops")
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._http.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_EVERY)
            self._verbs.expire()
            self.hub.bookmarks()

    def _make_namespaces(self) -> None:
        have = {key.name for key, _ in self.log.list("namespaces")}
        for name in NAMESPACES_AT_START:
            if name not in have:
                body = encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                self._verbs.answer(Request("POST", "/api/v1/namespaces", body=body))
        self.verbs.clear()
