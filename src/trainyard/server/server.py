"""The embedded API server: its components, start and stop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainyard.controller_runtime.heap import trim_heap
from trainyard.controller_runtime.tasks import TaskSupervisor
from trainyard.objects.usage import UsageReport
from trainyard.server.auth.authentication import Authenticator
from trainyard.server.builtin import BUILT_IN, metrics
from trainyard.server.builtin.bootstrap import bootstrap
from trainyard.server.http.in_process import InProcessKubelet, InProcessTransport
from trainyard.server.http.limits import Limits
from trainyard.server.http.listeners import Listeners, resolve_loopback
from trainyard.server.model.resources import Registry
from trainyard.server.registry.admission import Checks
from trainyard.server.storage.log import RevisionLog
from trainyard.server.storage.watches import BOOKMARK_SECONDS, WatchHub
from trainyard.server.verbs import Verbs
from trainyard.views.device_metrics import device_metrics

if TYPE_CHECKING:
    from trainyard.server.http.handler import HttpHandler

STOP_SECONDS = 1.0  # for requests in progress when the server stops


class Server:
    """A Kubernetes API in this process, on loopback only.

    `checks` are cross-field rules by (group, kind): functions of (new, old or None) that return problems. `verbs`
    counts the requests by (verb, resource): ("patch", "pods/status"). `key` signs the tokens of ServiceAccounts;
    without one a random key is used, so that tokens are invalid after a restart.
    """

    def __init__(
        self,
        checks: Checks | None = None,
        token: str = "",
        now: Callable[[], float] = time.time,
        log: RevisionLog | None = None,
        limits: Limits | None = None,
        kubelet_token: str = "",
        key: bytes = b"",
        report: Callable[[str], object] | None = None,
    ) -> None:
        self.log = RevisionLog() if log is None else log
        self.registry = Registry(BUILT_IN)
        self.hub = WatchHub(self.log)
        self._now = now
        self._verbs = Verbs(self.log, self.registry, checks or {}, now, key)
        self._limits = limits or Limits()
        self.kubelet_token = kubelet_token or token
        """The bearer token for kubelets. It should be valid for nothing else."""
        self._authenticator = Authenticator(token, self._verbs.tokens)
        self.kubelet: InProcessKubelet | None = None
        """The kubelet of the node in this process; in-process clients read logs from it without a connection."""
        self._http_handler: HttpHandler | None = None
        self._listeners: Listeners | None = None
        self.tasks = TaskSupervisor("API server", report)
        self.url = ""
        self.tls_url = ""

    @property
    def verbs(self) -> Counter[tuple[str, str]]:
        """The number of requests by (verb, resource)."""
        return self._verbs.counts

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Start the server with a plain HTTP listener on loopback, at `url`. Raises ValueError for an address that is
        not loopback, OSError."""
        await resolve_loopback(host)
        await self.open()
        self.url = f"http://{await self._running_listeners().listen(host, port, None)}"

    async def open(self) -> None:
        """Start the server without a listener, for `in_process` clients. `start_tls` adds one."""
        bootstrap(self._verbs.answer)
        self.verbs.clear()
        await self.log.wait_committed(self.log.revision)
        self._listeners = Listeners(
            lambda: self._load_http().new_connection(),
            lambda: self._http_handler.connection_count if self._http_handler else 0,
            self._limits,
        )
        self.tasks.start("send bookmarks and expire events", self._run_periodic)

    async def start_tls(
        self, context: ssl.SSLContext | asyncio.Future[ssl.SSLContext], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Add a TLS listener at `tls_url`, for kubectl and pods. From then on pods get ServiceAccount tokens.

        With a `context` that is not done yet, clients of this listener wait for it. Raises ValueError, OSError.
        """
        await resolve_loopback(host)
        context_future = context if isinstance(context, asyncio.Future) else asyncio.get_running_loop().create_future()
        if isinstance(context, ssl.SSLContext):
            context_future.set_result(context)
        self.tls_url = f"https://{await self._running_listeners().listen(host, port, context_future)}"
        self._verbs.has_tls_listener = True

    def serve_usage(self, report: Callable[[], UsageReport]) -> None:
        """Serve metrics.k8s.io, and the GPUs at /metrics. `report` returns the last measurements of the node; it must
        not block."""
        self._verbs.metrics = lambda: device_metrics(report())
        for resource in metrics.resources(report):
            self.registry.add(resource)

    def in_process(self) -> InProcessTransport:
        """A client transport for components in this process."""
        return InProcessTransport(
            self._verbs, self.hub, self._authenticator, lambda: self.kubelet, lambda: self._listeners is not None
        )

    def _load_http(self) -> HttpHandler:
        """The HTTP handler, imported at the first connection: many `trainyard run` end without one."""
        if self._http_handler is None:
            from trainyard.server.http.handler import HttpHandler

            self._http_handler = HttpHandler(
                self._verbs, self.hub, self._authenticator, self.kubelet_token, self._limits
            )
        return self._http_handler

    def _running_listeners(self) -> Listeners:
        if self._listeners is None:
            raise RuntimeError("the server has not been started")
        return self._listeners

    async def stop(self) -> None:
        """Close listeners, watches and connections, within a few seconds whatever the clients do. Idempotent."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            await listeners.close()
        self.hub.end_all("the server stops")
        await self.tasks.stop()
        http, self._http_handler = self._http_handler, None
        if http is not None:
            await http.close(STOP_SECONDS)

    async def _run_periodic(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_SECONDS)
            self._verbs.writes.expire_objects(self._now())
            self.hub.send_bookmarks()
            trim_heap()
