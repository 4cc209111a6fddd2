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
from trainyard.server import bootstrap
from trainyard.server.admission import Checks
from trainyard.server.errors import Refused
from trainyard.server.http import Http
from trainyard.server.log import Log
from trainyard.server.requests import Request
from trainyard.server.resources import Registry
from trainyard.server.strategies import BUILT_IN
from trainyard.server.verbs import Verbs
from trainyard.server.watching import BOOKMARK_EVERY, Hub

LONGEST_PATH = 1 << 16  # bytes of a request's first line


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
        self.tls_url = ""

    @property
    def verbs(self) -> Counter[tuple[str, str]]:
        return self._verbs.counts

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serves on `url` from here on, for this machine's own. Raises ValueError for an address others could reach."""
        _must_be_loopback(host)
        self._furnish()
        await self.log.durable(self.log.revision)
        # The command of an exec is part of its path: MPI names all hosts of a job there.
        server = web.Server(
            self._http, handler_cancellation=True, access_log=None, tcp_keepalive=False, max_line_size=LONGEST_PATH
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        self.url = f"http://{await self._listen(host, port, None)}"
        self._ticking = asyncio.create_task(self._tick())

    async def start_tls(self, context: ssl.SSLContext, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serves on `tls_url`, too: what kubectl and pods use. From here on pods get tokens for it."""
        _must_be_loopback(host)
        self.tls_url = f"https://{await self._listen(host, port, context)}"
        self._verbs.reachable = True

    async def _listen(self, host: str, port: int, context: ssl.SSLContext | None) -> str:
        """The address that is bound, as a URL has it."""
        if self._runner is None:
            raise RuntimeError("the server has not been started")
        site = web.TCPSite(self._runner, host, port, backlog=1024, ssl_context=context)
        await site.start()
        bound = self._runner.addresses[-1]
        return f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Ends all watches, then the rest. Twice is once."""
        self.hub.end_all("the server stops")
        self._http.end_tunnels()
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

    def _furnish(self) -> None:
        """What a cluster has from the beginning, unless the log has it already."""
        for path, obj in bootstrap.objects():
            try:
                self._verbs.answer(Request("POST", path, body=encode(obj)))
            except Refused as refused:
                if refused.reason != "AlreadyExists":
                    raise
        self.verbs.clear()


def _must_be_loopback(host: str) -> None:
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"the embedded API server listens on loopback only, not on {host}; use 127.0.0.1")
