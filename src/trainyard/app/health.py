"""What probes and Prometheus ask: /healthz, /readyz, /metrics. It serves nothing else, and knows nothing itself."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from trainyard.control.metrics import CONTENT_TYPE


class Health:
    """`alive` and `ready` say what is wrong, "" for nothing; `metrics` gives the text. `port` is what it got."""

    def __init__(self, alive: Callable[[], str], ready: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        self.port = 0
        self._alive = alive
        self._ready = ready
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when there is no listening there."""
        app = web.Application()
        app.router.add_get("/healthz", self._say_alive)
        app.router.add_get("/readyz", self._say_ready)
        app.router.add_get("/metrics", self._show)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port).start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _say_alive(self, request: web.Request) -> web.Response:
        return _answer(self._alive())

    async def _say_ready(self, request: web.Request) -> web.Response:
        return _answer(self._ready())

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})


def _answer(wrong: str) -> web.Response:
    return web.Response(text=f"{wrong}\n" if wrong else "ok\n", status=503 if wrong else 200)
