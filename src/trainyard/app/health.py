"""What probes and Prometheus ask: /healthz, /readyz, /metrics. It serves nothing else, and knows nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from trainyard.operator.metrics import CONTENT_TYPE


class Health:
    """`alive` and `ready` say what is wrong, "" for nothing; `metrics` gives the text; `checks` lists what
    stands behind `ready`: (name, what is wrong, what else is known). `port` is what it got."""

    def __init__(
        self,
        alive: Callable[[], str],
        ready: Callable[[], str],
        metrics: Callable[[], bytes],
        checks: Callable[[], Sequence[tuple[str, str, str]]] = lambda: (),
    ) -> None:
        self.port = 0
        self._alive = alive
        self._ready = ready
        self._metrics = metrics
        self._checks = checks
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
        wrong = self._ready()
        if "verbose" not in request.query:
            return _answer(wrong)
        lines = [_line(*check) for check in self._checks()]
        lines.append(f"readyz check {'failed' if wrong else 'passed'}\n")
        return web.Response(text="".join(lines), status=503 if wrong else 200)

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})


def _line(name: str, wrong: str, known: str) -> str:
    """As the API server's own `/readyz?verbose` has it."""
    text = wrong or known
    return f"[{'-' if wrong else '+'}]{name} {'failed' if wrong else 'ok'}{': ' if text else ''}{text}\n"


def _answer(wrong: str) -> web.Response:
    return web.Response(text=f"{wrong}\n" if wrong else "ok\n", status=503 if wrong else 200)
