"""HTTP by aiohttp: the transport to an API server that has an address.

Rules for this file:
- Short requests share a pool of connections. Streams (watches, logs) have connections of their own, so that a hundred
  followed logs do not starve one write.
- A peer that is dead (no end, no bytes) is noticed by TCP keep-alive.
- The authorities of this system are loaded where a request needs them.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from types import SimpleNamespace

from yarl import URL

from trainyard.client.credentials import Identity
from trainyard.client.errors import Unavailable
from trainyard.client.request import Request
from trainyard.client.transport import Guard


@contextmanager
def _without_system_authorities() -> Iterator[None]:
    """aiohttp loads them twice while it is imported, which takes a quarter of the time of `trainyard get`."""
    kept = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    os.environ.update(dict.fromkeys(kept, "/nonexistent"))
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with _without_system_authorities():
    import aiohttp

POOL = 64
CONNECT_SECONDS = 10.0
BUFFER = 1 << 20


class HttpTransport:
    """Connections to `url`, made at the first request. `proxy`, `server_name`: as for Api."""

    def __init__(self, url: str, headers: Mapping[str, str], proxy: str = "", server_name: str = "") -> None:
        self._url, self._headers = url, headers
        self._proxy, self._server_name = proxy or None, server_name or None
        self._short: aiohttp.ClientSession | None = None
        self._long: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        for session in (self._short, self._long):
            if session is not None:
                await session.close()
        self._short = self._long = None

    @asynccontextmanager
    async def open(
        self, request: Request, identity: Identity, seconds: float | None, guard: Guard | None, *, streams: bool
    ) -> AsyncIterator[_Reply]:
        headers = {"Content-Type": request.content_type} if request.content_type else {}
        if identity.token:
            headers["Authorization"] = f"Bearer {identity.token}"
        try:
            if guard is not None:
                guard(request)
            async with self._session(streams, guard).request(
                *(request.method, URL(self._url + request.target, encoded=True)),
                data=request.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
                allow_redirects=False,
                ssl=identity.secure or (_system() if self._url.startswith("https:") else True),
                proxy=self._proxy,
                server_hostname=self._server_name,
                trace_request_ctx=request,
            ) as response:
                yield _Reply(response)
        except TimeoutError:
            what = f"{request.method} {request.path}: no answer in time"
            raise Unavailable(0, "Timeout", what) from None
        except (aiohttp.ClientError, OSError) as error:
            what = f"{request.method} {request.path}: {_why(error)}"
            raise Unavailable(0, "ConnectionLost", what) from None

    def _session(self, streams: bool, guard: Guard | None) -> aiohttp.ClientSession:
        """Made with the guard of the first request: an Api has one for all its life."""
        if streams:
            self._long = self._long or self._new_session(0, guard)
            return self._long
        self._short = self._short or self._new_session(POOL, guard)
        return self._short

    def _new_session(self, limit: int, guard: Guard | None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, socket_factory=_socket),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=BUFFER,
            trace_configs=[_guarded(guard)] if guard is not None else None,
        )


class _Reply:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = response.headers

    async def read(self) -> bytes:
        return await self._response.read()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()


def _guarded(guard: Guard) -> aiohttp.TraceConfig:
    """The guard once more when the request has got its connection, which may take long; and in the very step in which
    its body is sent, its head along with it: whoever is stopped before that has not sent it."""

    async def look(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
        guard(context.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(look)
    trace.on_connection_reuseconn.append(look)
    trace.on_request_chunk_sent.append(look)
    return trace


@cache
def _system() -> ssl.SSLContext:
    """What trusts the authorities of this system."""
    return ssl.create_default_context()


def _why(error: Exception) -> str:
    """Why there was no answer, without what aiohttp says of its own objects."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return re.sub(r" ssl:<[^>]*>", "", str(error)) or type(error).__name__


def _socket(address: aiohttp.connector.AddrInfoType) -> socket.socket:
    """A socket that notices a dead peer by itself."""
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return made
