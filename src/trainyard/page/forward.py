"""Forwards: the TensorBoard of a job at a port of its own, for the person who has pressed its button.

    browser --> http://RANDOM.localhost:PORT --> API server, with the person's rights: pods/NAME:PORT/proxy --> pod

Rules for this file:
- A pod's page has an origin of its own, never that of the page server, and nothing of the page server is sent to it.
- The right to a forward is a cookie: a page's own requests carry no other credential. A browser sends the cookies of
  127.0.0.1 to every port, but those of RANDOM.localhost to that name alone, to which only this forward answers.
- The cookie is given once, in exchange for the ticket in the link. It opens this forward and nothing else.
- Before the first press there is no listener. A forward that nobody uses is closed, and so is that of a deleted job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web

from trainyard.client import ApiClient
from trainyard.kinds.tensorboard import PORT
from trainyard.objects import namespace_of
from trainyard.page.connections import Connections
from trainyard.page.observation import Observation
from trainyard.page.pod_requests import COOKIE, PodRequests
from trainyard.page.responses import RequestRefused
from trainyard.page.sessions import Sessions, TooManyTries
from trainyard.server.http.limits import Limits
from trainyard.server.http.listeners import Listeners
from trainyard.views.tensorboard_view import tensorboard_view

log = logging.getLogger("trainyard.page")

IDLE_SECONDS = 600.0  # without a request, and without a WebSocket
MAX_FORWARDS = 8
CLOSE_SECONDS = 0.5
LIMITS = Limits(max_connections=16)  # of one forward: a browser has six, and one for each WebSocket
PORT_TRIES = 8
TICKET_PATH = "/.trainyard/ticket/"
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class Forwards:
    """The forwards that are open, by the uid of the job. `api`: a client with the person's rights, which connects."""

    def __init__(self, api: ApiClient, observation: Observation) -> None:
        self._observation, self._requests = observation, PodRequests(api)
        self._forwards: dict[str, Forward] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, job_uid: str) -> str:
        """A link to the TensorBoard of a job: it works once, within a minute. Raises RequestRefused."""
        self._target(job_uid)
        if job_uid not in self._forwards and len(self._forwards) >= MAX_FORWARDS:
            text = f"{MAX_FORWARDS} are open already; each is closed {IDLE_SECONDS / 60:.0f} minutes after its last use"
            raise RequestRefused(503, text)
        if (forward := self._forwards.get(job_uid)) is None:
            forward = self._new_forward(job_uid)
            forward.start()
        return forward.link()

    def _new_forward(self, job_uid: str) -> Forward:
        try:
            forward = Forward(lambda request: self._answer(request, job_uid), lambda: self._close_later(job_uid))
        except OSError as error:
            raise RequestRefused(503, f"there is no port for it: {error.strerror or error}") from None
        if not self._forwards:
            self._observation.subscribe(self._on_change)
        self._forwards[job_uid] = forward
        return forward

    async def _answer(self, request: web.BaseRequest, job_uid: str) -> web.StreamResponse:
        try:
            prefix = self._target(job_uid)
        except RequestRefused as error:  # it ran when it was opened
            raise RequestRefused(502, error.text) from None
        return await self._requests.answer(request, prefix)

    def _target(self, job_uid: str) -> str:
        """The path of the pod's proxy in the API. Raises RequestRefused."""
        job = self._observation.view.jobs.get(job_uid)
        view = tensorboard_view(job, self._observation.pods(job_uid)) if job else None
        if job is None or view is None:
            raise RequestRefused(404, "there is no such job" if job is None else "the job has no TensorBoard")
        if not view.pod:
            raise RequestRefused(409, f"TensorBoard does not run: {view.message}")
        return f"/api/v1/namespaces/{namespace_of(job)}/pods/{view.pod}:{PORT}/proxy"

    async def close(self) -> None:
        """Close all of them. Idempotent."""
        for job_uid in tuple(self._forwards):
            self._close_later(job_uid)
        await asyncio.gather(*self._closing)
        await self._requests.close()

    def _on_change(self, job_uid: str) -> None:
        if job_uid in self._forwards and job_uid not in self._observation.view.jobs:
            self._close_later(job_uid)

    def _close_later(self, job_uid: str) -> None:
        forward = self._forwards.pop(job_uid, None)
        if forward is None:
            return
        if not self._forwards:
            self._observation.unsubscribe(self._on_change)
        task = asyncio.ensure_future(forward.stop())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Forward:
    """One listener. `serve` answers a request of who may; `on_idle` is called when there was none for a while."""

    def __init__(self, serve: Serve, on_idle: Callable[[], None]) -> None:
        """Takes the port. Raises OSError."""
        self.name = f"{secrets.token_hex(16)}.localhost"
        self._sockets = loopback_sockets()
        self.port: int = self._sockets[0].getsockname()[1]
        self._serve, self._on_idle = serve, on_idle
        self._sessions = Sessions(secrets.token_bytes(32), time.time)
        self._connections = connections = Connections(self._answer, LIMITS, is_cancelled=True)
        self._listeners = Listeners(
            connections.new_connection, connections.__len__, LIMITS, connections.close_idle, "forward"
        )
        self._is_open = False
        self._open_requests = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept connections."""
        self._is_open = True
        for listening in self._sockets:
            self._listeners.accept_from(listening)
        with self._in_use():  # the time until it is closed begins
            pass

    def link(self) -> str:
        """A link that opens it, once and within a minute."""
        with self._in_use():
            return f"http://{self.name}:{self.port}{TICKET_PATH}{self._sessions.invite()}"

    async def stop(self) -> None:
        """Close the listeners and all connections. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_open = False
        await self._listeners.close()
        await self._connections.close(CLOSE_SECONDS)

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._open_requests += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            yield
        finally:
            self._open_requests -= 1
            if not self._open_requests and self._is_open:
                self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._on_idle)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._checked(request)
        except RequestRefused as error:
            return web.Response(status=error.status, text=f"{error.text}\n", headers=_HEADERS)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a forward failed: method=%s", request.method)
            return web.Response(status=500, text="the page server failed to answer: see the log of the cluster\n")

    async def _checked(self, request: web.BaseRequest) -> web.StreamResponse:
        """Refuse other names, other pages, and who has no right; the port is not compared, as `ssh -L` may change
        it."""
        host = request.headers.get("Host", "")
        name, colon, port = host.partition(":")
        if name.lower() != self.name or (colon and not port.isdecimal()):
            raise RequestRefused(421, "this is not the address of a forward")
        if request.headers.get("Origin", f"http://{host}") != f"http://{host}":
            raise RequestRefused(403, "requests of other pages are refused")
        if request.method == "GET" and request.path.startswith(TICKET_PATH):
            return self._exchange(request.path.removeprefix(TICKET_PATH))
        if self._sessions.right_of(request.cookies.get(COOKIE, "")) is None:
            raise RequestRefused(401, "press TensorBoard on the page of the job: this address opens by that alone")
        with self._in_use(), self._connections.admitted(request):
            return await self._serve(request)

    def _exchange(self, ticket: str) -> web.StreamResponse:
        try:
            session = self._sessions.accept(ticket)
        except TooManyTries:
            raise RequestRefused(429, "too many links were tried; wait a minute") from None
        if session is None:
            raise RequestRefused(401, "this link was used or is too old: press TensorBoard again")
        response = web.Response(status=303, headers={**_HEADERS, "Location": "/"})
        response.set_cookie(COOKIE, session, httponly=True, samesite="Lax")  # the link is pressed on another site
        return response


def loopback_sockets() -> list[socket.socket]:
    """Sockets with the same free port, of IPv4 and, if the machine has it, of IPv6. Browsers try ::1 first: another
    user's program that listened there would get the ticket. Raises OSError."""
    for _ in range(PORT_TRIES):
        first = socket.create_server(("127.0.0.1", 0))
        try:
            second = socket.create_server(("::1", first.getsockname()[1]), family=socket.AF_INET6)
        except OSError as error:
            if not _has_ipv6():
                return [first]
            first.close()
            failure = error
        else:
            return [first, second]
    raise failure


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
