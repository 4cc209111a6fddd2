"""The HTTP transport to an API server: its pool of connections (connection.py, opened by connector.py).

Rules for this file:
- Short requests share a pool of connections. Streams (watches, logs) use connections outside it, so that a hundred
  followed logs do not block a write.
- A connection that was opened with other credentials is not used again.
- A GET whose kept connection the server had closed is sent once more, on a new connection. No write is.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from trainyard.client.connection import Connection, Response, error_message
from trainyard.client.connector import Connector, header_lines
from trainyard.client.credentials import Identity
from trainyard.client.errors import Unavailable
from trainyard.client.request import ApiRequest
from trainyard.client.transport import POOL_SIZE, BeforeSend, WholeResponse

IDLE_TIMEOUT = (
    45.0  # seconds until an idle connection is closed; API servers close it after 90, load balancers after 60
)
NO_RESPONSE = "no response in time"
_NOT_IN_A_TARGET = re.compile(r"[^\x21-\x7e]")


class HttpTransport:
    """Connections to `url`, opened at the first request. `headers` are sent with every request; `proxy`, `server_name`
    and `pool_size` are as for ApiClient."""

    def __init__(
        self, url: str, headers: Mapping[str, str], proxy: str = "", server_name: str = "", pool_size: int = POOL_SIZE
    ) -> None:
        self._connector = Connector(url, proxy, server_name)
        self._headers = header_lines({**self._connector.headers, **headers})
        self._slots = asyncio.Semaphore(pool_size)
        self._idle: list[Connection] = []  # the one that was used last is at the end
        self._open: set[Connection] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._next_deadline = float("inf")  # that of the timer

    async def close(self) -> None:
        """Close every connection; a later request opens a new one."""
        for timer in filter(None, (self._idle_timer, self._deadline_timer)):
            timer.cancel()
        self._idle_timer = self._deadline_timer = None
        self._next_deadline = float("inf")
        self._idle.clear()
        for connection in self._open:
            connection.close(message="the client was closed")
        self._open.clear()

    async def fetch(
        self, request: ApiRequest, identity: Identity, seconds: float, guard: BeforeSend | None
    ) -> WholeResponse:
        """Send the request and return the response. `seconds`: the limit for all of it. `guard` may refuse the request,
        here and in the step that writes it to the connection. Raises Unavailable when no response comes, ValueError for
        a request that HTTP cannot carry.

        With the context manager of `stream`, and a wake-up of the task for the headers and for each part of the body, a
        request took 81 us instead of 69 (bench/client.py)."""
        if guard is not None:
            guard(request)
        deadline = asyncio.get_running_loop().time() + seconds
        await self._take_slot(request, deadline)
        try:
            tls = self._connector.tls_context(identity.secure)
            message = self._encode(request, identity)
            connection = self._take_idle(tls)
            is_kept = connection is not None
            while True:
                if connection is None:
                    connection = await self._connect(request, tls, deadline)
                self._set_deadline(connection, deadline)
                response: Response | None = None
                try:
                    if guard is not None:
                        guard(request)
                    response = connection.send(message, _label(request))
                    body = await response.read()
                    return WholeResponse(response.status, {} if response.status < 300 else response.headers, body)
                except Unavailable as error:
                    has_begun = response is None or response.status
                    if has_begun or not is_kept or request.method != "GET" or error.reason == "Timeout":
                        raise
                finally:
                    self._end(connection, keep=True)
                connection, is_kept = None, False
        finally:
            self._slots.release()

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest, identity: Identity, seconds: float | None, guard: BeforeSend | None
    ) -> AsyncIterator[Response]:
        """As `fetch`, with a connection of its own, for a response that may last: yields it when its headers have come.
        `seconds` None: no limit."""
        if guard is not None:
            guard(request)
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        tls = self._connector.tls_context(identity.secure)
        message = self._encode(request, identity)
        connection = await self._connect(request, tls, deadline)
        if deadline is not None:
            self._set_deadline(connection, deadline)
        try:
            if guard is not None:
                guard(request)
            response = connection.send(message, _label(request))
            await response.head()
            yield response
        finally:
            self._end(connection, keep=False)

    def _encode(self, request: ApiRequest, identity: Identity) -> bytes:
        """The request as bytes. Raises ValueError."""
        target = self._connector.target_prefix + request.target
        if _NOT_IN_A_TARGET.search(target):
            raise ValueError(f"{request.method} {target!r}: the path of a request must be percent-encoded")
        head = f"{request.method} {target} HTTP/1.1\r\n{self._headers}"
        if identity.token:
            head += header_lines({"Authorization": f"Bearer {identity.token}"})
        if request.content_type:
            head += f"Content-Type: {request.content_type}\r\n"
        if request.body is not None or request.method != "GET":
            head += f"Content-Length: {len(request.body or b'')}\r\n"
        return head.encode("ascii") + b"\r\n" + (request.body or b"")

    async def _take_slot(self, request: ApiRequest, deadline: float) -> None:
        """Wait until fewer than `pool_size` requests are in progress. Raises Unavailable at the deadline."""
        if not self._slots.locked():
            await self._slots.acquire()  # at once
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(0, "Timeout", f"{_label(request)}: {NO_RESPONSE}") from None

    def _take_idle(self, tls: ssl.SSLContext | None) -> Connection | None:
        """The idle connection that was used last; None if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.tls is tls and not connection.closed:
                return connection
            self._discard(connection)
        return None

    async def _connect(self, request: ApiRequest, tls: ssl.SSLContext | None, deadline: float | None) -> Connection:
        """A new connection. Raises Unavailable."""
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connector.connect(tls)
        except TimeoutError:
            raise Unavailable(0, "Timeout", f"{_label(request)}: {NO_RESPONSE}") from None
        except OSError as error:
            raise Unavailable(0, "ConnectionLost", f"{_label(request)}: {error_message(error)}") from None
        self._open.add(connection)
        return connection

    def _end(self, connection: Connection, *, keep: bool) -> None:
        """Keep the connection for the next request if its response is complete; close it otherwise."""
        connection.deadline = float("inf")
        if not keep or not connection.is_idle:
            self._discard(connection)
            return
        self._idle.append(connection)
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._close_idle)

    def _set_deadline(self, connection: Connection, deadline: float) -> None:
        """Close the connection at the deadline, unless its response has ended. Not by asyncio.timeout, because the
        caller may read the response in several tasks, and by one timer for all connections: a timer for each request
        was 2 % of the CPU of an operator."""
        connection.deadline = deadline
        if deadline < self._next_deadline:
            self._close_overdue()

    def _close_overdue(self) -> None:
        """Close the connections whose deadline is over, and call this again at the next deadline."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self._open):
            if connection.deadline <= now:
                connection.close("Timeout", NO_RESPONSE)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        later = [connection.deadline for connection in self._open if now < connection.deadline < float("inf")]
        self._next_deadline = min(later, default=float("inf"))
        self._deadline_timer = loop.call_at(self._next_deadline, self._close_overdue) if later else None

    def _discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def _close_idle(self) -> None:
        """Close the connections that have been idle for IDLE_TIMEOUT, and call this again when the next one has."""
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].last_used >= IDLE_TIMEOUT:
            self._discard(self._idle.pop(0))
        next_time = self._idle[0].last_used + IDLE_TIMEOUT if self._idle else None
        self._idle_timer = loop.call_at(next_time, self._close_idle) if next_time is not None else None


def _label(request: ApiRequest) -> str:
    """How errors name a request."""
    return f"{request.method} {request.path}"
