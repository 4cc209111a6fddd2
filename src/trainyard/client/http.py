"""The HTTP transport to an API server, by aiohttp.

Rules for this file:
- Short requests share a pool of connections. Streams (watches, logs) use connections outside it, so that a hundred
  followed logs do not block a write.
- TCP keep-alive detects a dead peer (no FIN, no bytes).
- The system's CA certificates are loaded by the first request that needs them.
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
from trainyard.client.request import ApiRequest
from trainyard.client.transport import BeforeSend


@contextmanager
def _without_system_cas() -> Iterator[None]:
    """Hide the system's CA certificates from OpenSSL.

    aiohttp loads them twice at import, which takes a quarter of the time of `trainyard get`.
    """
    saved = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    os.environ.update(dict.fromkeys(saved, "/nonexistent"))
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with _without_system_cas():
    import aiohttp

POOL_SIZE = 64  # connections
CONNECT_TIMEOUT = 10.0
READ_BUFFER_BYTES = 1 << 20  # bytes
IDLE_TIMEOUT = (
    45.0  # seconds until an idle connection is closed; API servers close it after 90, load balancers after 60
)


class HttpTransport:
    """Connections to `url`, opened at the first request. `headers` are sent with every request; `proxy` and
    `server_name` are as for ApiClient."""

    def __init__(self, url: str, headers: Mapping[str, str], proxy: str = "", server_name: str = "") -> None:
        self._url, self._headers = url, headers
        self._proxy, self._server_name = proxy or None, server_name or None
        self._pooled_session: aiohttp.ClientSession | None = None
        self._stream_session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close both connection pools; a later request opens them again."""
        for session in (self._pooled_session, self._stream_session):
            if session is not None:
                await session.close()
        self._pooled_session = self._stream_session = None

    @asynccontextmanager
    async def open(
        self, request: ApiRequest, identity: Identity, seconds: float | None, guard: BeforeSend | None, *, streams: bool
    ) -> AsyncIterator[_Reply]:
        """Send the request and yield the response, whose body is still to be read. `seconds`: the limit for all of it,
        None for no limit; `guard` may refuse the request. Raises Unavailable when no response comes."""
        headers = {"Content-Type": request.content_type} if request.content_type else {}
        if identity.token:
            headers["Authorization"] = f"Bearer {identity.token}"
        try:
            if guard is not None:
                guard(request)
            async with self._get_session(streams, guard).request(
                *(request.method, URL(self._url + request.target, encoded=True)),
                data=request.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_TIMEOUT),
                allow_redirects=False,
                ssl=identity.secure or (_system_tls_context() if self._url.startswith("https:") else True),
                proxy=self._proxy,
                server_hostname=self._server_name,
                trace_request_ctx=request,
            ) as response:
                yield _Reply(response)
        except TimeoutError:
            message = f"{request.method} {request.path}: no response in time"
            raise Unavailable(0, "Timeout", message) from None
        except (aiohttp.ClientError, OSError) as error:
            message = f"{request.method} {request.path}: {_error_message(error)}"
            raise Unavailable(0, "ConnectionLost", message) from None

    def _get_session(self, streams: bool, guard: BeforeSend | None) -> aiohttp.ClientSession:
        """The session, created with the guard of the first request: the guard of an ApiClient does not change after
        it."""
        if streams:
            self._stream_session = self._stream_session or self._new_session(0, guard)
            return self._stream_session
        self._pooled_session = self._pooled_session or self._new_session(POOL_SIZE, guard)
        return self._pooled_session

    def _new_session(self, limit: int, guard: BeforeSend | None) -> aiohttp.ClientSession:
        """`limit` is the maximum number of connections, 0 for no limit."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, socket_factory=_new_socket, keepalive_timeout=IDLE_TIMEOUT),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            trace_configs=[_guard_trace_config(guard)] if guard is not None else None,
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


def _guard_trace_config(guard: BeforeSend) -> aiohttp.TraceConfig:
    """Trace hooks that call the guard again: when the request has its connection, which may take long, and in the step
    of the event loop that sends its headers and body. A request that the guard rejects there has not been sent."""

    async def call_guard(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
        guard(context.trace_request_ctx)

    trace_config = aiohttp.TraceConfig()
    trace_config.on_connection_create_end.append(call_guard)
    trace_config.on_connection_reuseconn.append(call_guard)
    trace_config.on_request_chunk_sent.append(call_guard)
    return trace_config


@cache
def _system_tls_context() -> ssl.SSLContext:
    """A TLS context with the system's CA certificates."""
    return ssl.create_default_context()


def _error_message(error: Exception) -> str:
    """The message of a connection error, without the representation of aiohttp's objects."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return re.sub(r" ssl:<[^>]*>", "", str(error)) or type(error).__name__


def _new_socket(address: aiohttp.connector.AddrInfoType) -> socket.socket:
    """A TCP socket with keep-alive, which detects a dead peer after about a minute."""
    family, socket_type, protocol = address[0], address[1], address[2]
    sock = socket.socket(family, socket_type, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
