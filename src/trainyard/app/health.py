"""The HTTP server for probes and Prometheus: /healthz, /readyz, /metrics. All state comes from its callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from trainyard.operator.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)
log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Whoever reaches the port may send what is no request, as often as he likes."""


class HealthServer:
    """`alive` and `ready` return the error, "" for none; `metrics` returns the text for Prometheus, None: /metrics is
    not served; `checks` returns the lines of `/readyz?verbose`: (name, error or "", other information). `port` is the
    port after `start`, 0 before."""

    def __init__(
        self,
        alive: Callable[[], str],
        ready: Callable[[], str],
        metrics: Callable[[], bytes] | None,
        checks: Callable[[], Sequence[tuple[str, str, str]]] = lambda: (),
    ) -> None:
        self.port = 0
        self._alive = alive
        self._ready = ready
        self._metrics = metrics
        self._checks = checks
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen on this address; port 0 is any free one. Raises OSError."""
        app = web.Application()
        app.router.add_get("/healthz", self._get_healthz)
        app.router.add_get("/readyz", self._get_readyz)
        if self._metrics is not None:
            app.router.add_get("/metrics", partial(self._get_metrics, self._metrics))
        self._runner = web.AppRunner(app, access_log=None, logger=log, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port).start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the listening socket and the connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _get_healthz(self, request: web.Request) -> web.Response:
        return _response(self._alive())

    async def _get_readyz(self, request: web.Request) -> web.Response:
        error = self._ready()
        if "verbose" not in request.query:
            return _response(error)
        lines = [_line(*check) for check in self._checks()]
        lines.append(f"readyz check {'failed' if error else 'passed'}\n")
        return web.Response(text="".join(lines), status=503 if error else 200)

    @staticmethod
    async def _get_metrics(metrics: Callable[[], bytes], request: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE})


def _line(name: str, error: str, information: str) -> str:
    """One line in the format of `/readyz?verbose` of the Kubernetes API server."""
    text = error or information
    return f"[{'-' if error else '+'}]{name} {'failed' if error else 'ok'}{': ' if text else ''}{text}\n"


def _response(error: str) -> web.Response:
    return web.Response(text=f"{error}\n" if error else "ok\n", status=503 if error else 200)
