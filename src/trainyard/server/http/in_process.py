"""The client transport for components in the server's process: the same guard, verbs and log, without HTTP.

Rules for this file:
- An in-process client uses the same API: it authenticates with a token, sends bytes and gets bytes.
- Each request yields to the event loop first, so that many requests in a row do not block it.
- A watch that is not read is dropped, as over a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlencode

from trainyard import __version__, client
from trainyard.client import Identity, Unavailable
from trainyard.client import transport as carrying
from trainyard.server.auth.authentication import Authenticator
from trainyard.server.execution import execute
from trainyard.server.model.errors import StatusError, kubelet_error
from trainyard.server.model.requests import KubeletProxy, Request, Response, Watch
from trainyard.server.storage.watches import LAST_BOOKMARK_SECONDS, MAX_BUFFERED, Listener, WatchHub
from trainyard.server.verbs import Verbs

log = logging.getLogger("trainyard.server")

InProcessKubelet = Callable[[str, Callable[[], bool]], tuple[int, AsyncIterator[bytes]]]
"""A kubelet in this process: takes a URL, returns status code and body. The second argument returns True once the
client has disconnected; then the body must end."""


class _Reply(NamedTuple):
    status: int
    body: AsyncIterator[bytes]
    headers: Mapping[str, str] = MappingProxyType({})

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.body])

    def chunks(self) -> AsyncIterator[bytes]:
        return self.body


class InProcessTransport:
    """A `client.transport.Transport`. `kubelet` returns the kubelet of this process, or None; `serves` returns whether
    the server is running."""

    def __init__(
        self,
        verbs: Verbs,
        hub: WatchHub,
        authenticator: Authenticator,
        kubelet: Callable[[], InProcessKubelet | None],
        serves: Callable[[], bool],
    ) -> None:
        self._verbs, self._hub, self._authenticator, self._kubelet, self._serves = (
            verbs,
            hub,
            authenticator,
            kubelet,
            serves,
        )
        self._listeners: set[Listener] = set()
        self._closed = False

    async def close(self) -> None:
        """End all watches of this client; later requests fail with Unavailable."""
        self._closed = True
        for listener in tuple(self._listeners):
            listener.end("closed")

    async def fetch(
        self, request: client.ApiRequest, identity: Identity, seconds: float, guard: carrying.BeforeSend | None
    ) -> carrying.WholeResponse:
        """As HttpTransport.fetch, without a socket: the request runs in the caller's task."""
        reply = await self._send(request, identity, seconds, guard)
        return carrying.WholeResponse(reply.status, reply.headers, await reply.read())

    @asynccontextmanager
    async def stream(
        self, request: client.ApiRequest, identity: Identity, seconds: float | None, guard: carrying.BeforeSend | None
    ) -> AsyncIterator[_Reply]:
        """As HttpTransport.stream; nothing limits its time."""
        yield await self._send(request, identity, None, guard)

    async def _send(
        self, request: client.ApiRequest, identity: Identity, seconds: float | None, guard: carrying.BeforeSend | None
    ) -> _Reply:
        """Raises Unavailable."""
        await asyncio.sleep(0)
        if self._closed or not self._serves():
            raise Unavailable(0, "ConnectionLost", f"{request.method} {request.path}: the API server is not up")
        if guard is not None:
            guard(request)
        try:
            return await self._answer(request, identity, seconds)
        except StatusError as refused:
            retry_after = (refused.details or {}).get("retryAfterSeconds")
            headers = {"Retry-After": str(retry_after)} if retry_after else {}
            return _Reply(refused.code, _single_chunk(refused.body()), headers)
        except TimeoutError:
            raise Unavailable(0, "Timeout", f"{request.method} {request.path}: no answer in time") from None

    async def _answer(self, request: client.ApiRequest, identity: Identity, seconds: float | None) -> _Reply:
        """Raises StatusError and TimeoutError."""
        decoded = Request(
            method=request.method,
            path=request.path,
            query=dict(reversed(request.query)),  # the first value of each name
            body=request.body or b"",
            content_type=request.content_type,
            accept="application/json",
            user=self._authenticator.user_of(f"Bearer {identity.token}" if identity.token else "", request.path),
            query_string=urlencode(request.query),
            agent=f"trainyard/{__version__}",
        )
        try:
            async with asyncio.timeout(seconds):
                answer = await execute(self._verbs, decoded)
        except (StatusError, TimeoutError):
            raise
        except Exception:
            log.exception("a request failed: method=%s path=%r", request.method, request.path)
            text = "Internal error occurred: see the API server's log"
            raise StatusError(500, "InternalError", text) from None
        if isinstance(answer, Response):
            return _Reply(answer.code, _single_chunk(answer.body), answer.headers)
        if isinstance(answer, Watch):
            return _Reply(200, self._watch(answer))
        kubelet = self._kubelet()
        if isinstance(answer, KubeletProxy) and kubelet is not None:
            status, body = kubelet(answer.url, lambda: self._closed)
            if status >= 300:
                raise kubelet_error(status, b"".join([chunk async for chunk in body]).decode("utf-8", "replace"))
            return _Reply(status, body)
        raise StatusError(400, "BadRequest", "this needs a connection to the API server: use its address")

    async def _watch(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        """The lines of a watch until it ends. Raises Unavailable when the watch is dropped or the transport is
        closed."""
        arrived, lines = asyncio.Event(), _Unread()

        def send(line: bytes) -> None:
            lines.add(line)
            arrived.set()

        listener = Listener(watch, send, lambda: lines.size > MAX_BUFFERED)
        listener.ended.add_done_callback(lambda _: arrived.set())
        self._listeners.add(listener)
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(watch.seconds, listener.end, "time")]
        if watch.bookmarks and watch.seconds > LAST_BOOKMARK_SECONDS:
            timers.append(
                loop.call_later(watch.seconds - LAST_BOOKMARK_SECONDS, self._hub.send_last_bookmark, listener)
            )
        try:
            if watch.initial:
                yield b"".join(watch.initial)
            if watch.initial_end:
                yield listener.bookmark(watch.revision, initial_end=True)
            while missed := self._hub.past_lines(listener):
                yield b"".join(missed)
                if listener.ended.done():
                    return
            while not (listener.ended.done() and not lines.size):
                await arrived.wait()
                arrived.clear()
                if lines.size:
                    yield lines.take()
            reason = listener.ended.result()
            if reason == "slow":
                log.warning("watch closed, its client reads too slowly: resource=%s", watch.resource.full_name)
            if reason in ("slow", "broken", "closed"):
                raise Unavailable(0, "ConnectionLost", f"the watch of {watch.resource.full_name} was ended: {reason}")
        finally:
            self._hub.remove(listener)
            self._listeners.discard(listener)
            for timer in timers:
                timer.cancel()


class _Unread:
    """The buffer of lines that a client has not read yet."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self.size = 0
        """Bytes."""

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self.size += len(line)

    def take(self) -> bytes:
        lines, self._lines, self.size = self._lines, [], 0
        return b"".join(lines)


async def _single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
