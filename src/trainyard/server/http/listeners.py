"""Listening sockets on loopback, and the acceptance of connections.

Rules for this file:
- Loopback only. A host name is resolved first, all its addresses must be loopback, and an address is bound, not a name.
- One connection is accepted at a time, and other tasks of the event loop run in between.
- When file descriptors run out, new clients wait in the kernel's accept queue until one is free; open connections
  continue. A warning is logged at most once a minute.
- Above the connection limit a client gets 503 at once, so that descriptors remain for the rest of the process; or an
  idle connection is closed for it. This too is logged at most once a minute.
- A client that sends plain HTTP to a TLS listener gets 400 with the message of Go's net/http, which tools recognise.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import ssl
import time
from asyncio import sslproto
from collections.abc import Callable, Coroutine

from trainyard.server.http.limits import Limits
from trainyard.server.model.errors import StatusError

log = logging.getLogger("trainyard.server")

BACKLOG = 1024
TLS_BUFFER = 32 * 1024
"""Bytes of the read buffer of a TLS connection. With asyncio's default of 256 KiB, 5,000 watches would take 1.2 GiB."""
ACCEPT_RETRY_SECONDS = 0.1  # seconds until the next accept after descriptors ran out
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
WARN_EVERY = 60.0
_PLAIN = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"PATCH", b"DELET")
_WRONG_DOOR = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Listeners:
    """The listeners of a server, the connections of which are limited together. `make` creates the protocol of a
    connection; `connection_count` returns the number of open connections; `close_idle` closes a connection without a
    request when there are too many, and returns False if there is none; `name`: that of the server in the log."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        connection_count: Callable[[], int],
        limits: Limits,
        close_idle: Callable[[], bool] = lambda: False,
        name: str = "API server",
    ) -> None:
        self._protocol_factory, self._connection_count, self._limits = make, connection_count, limits
        self._close_idle = close_idle
        self._max_connections = limits.connection_limit()
        fix = "" if limits.max_connections else "; raise `ulimit -n`"
        self._full = f"{name}: {self._max_connections} connections are open, more are refused, or idle ones closed{fix}"
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned_at = -WARN_EVERY

    async def listen(self, host: str, port: int, context: asyncio.Future[ssl.SSLContext] | None) -> str:
        """Open a listener; return its address as host:port. With a `context` it serves TLS; clients wait until the
        context is ready. Raises ValueError for an address that is not loopback, and OSError."""
        family, address = await resolve_loopback(host)
        if context is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER  # for the whole process: asyncio has no option for it
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            reason = (error.strerror or str(error)).lower()
            raise OSError(error.errno, f"cannot listen on {address} port {port}: {reason}") from None
        self.accept_from(listener, context)
        bound_port = listener.getsockname()[1]
        return f"[{address}]:{bound_port}" if family == socket.AF_INET6 else f"{address}:{bound_port}"

    def accept_from(self, listener: socket.socket, context: asyncio.Future[ssl.SSLContext] | None = None) -> None:
        """Accept the connections of a socket that listens on loopback, and close it at the end."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._start_task(self._accept(listener, context))

    async def close(self) -> None:
        """Stop accepting connections and close the listeners."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, context: asyncio.Future[ssl.SSLContext] | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._warn("no descriptors are left, new connections wait; raise `ulimit -n`")
                    await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue  # other errors: the client has disconnected already
            if self._connection_count() + len(self._tasks) - len(self._listeners) >= self._max_connections:
                self._warn(self._full)
                if not self._close_idle():
                    _reject(client, secure=context is not None)
                    await asyncio.sleep(0)
                    continue
            self._start_task(self._handshake(client, context))
            await asyncio.sleep(0)

    async def _handshake(self, client: socket.socket, context: asyncio.Future[ssl.SSLContext] | None) -> None:
        loop, seconds = asyncio.get_running_loop(), self._limits.handshake_seconds if context else None
        try:
            if context is not None and await _sends_plain_http(client, self._limits.handshake_seconds):
                return _close_with(client, _WRONG_DOOR)
            tls_context = await asyncio.shield(context) if context else None
            await loop.connect_accepted_socket(
                self._protocol_factory, client, ssl=tls_context, ssl_handshake_timeout=seconds
            )
        except asyncio.CancelledError:
            client.close()  # no protocol owns the socket yet
            raise
        except (OSError, TimeoutError) as error:  # no TLS, too slow, or disconnected
            log.debug("a TLS handshake failed: %s", type(error).__name__)
            client.close()

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning(text)


async def resolve_loopback(host: str) -> tuple[socket.AddressFamily, str]:
    """The address family and address to bind for a host name or address. Raises ValueError when it is not loopback."""
    loop = asyncio.get_running_loop()
    try:
        results = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        results = []
    addresses = [str(result[4][0]) for result in results]
    external = [address for address in addresses if not ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    if external or not results or not host:
        described = f"{host or 'every address'}, which is {external[0]}" if external and external[0] != host else host
        raise ValueError(f"the embedded API server listens on loopback only, not on {described}; use 127.0.0.1")
    family, _, _, _, address = min(results, key=lambda result: result[0] != socket.AF_INET)
    return family, str(address[0])


async def _sends_plain_http(client: socket.socket, seconds: float) -> bool:
    """Whether the first bytes (peeked, not consumed) are plain HTTP. Raises TimeoutError, OSError."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(client, readable.set)
    try:
        async with asyncio.timeout(seconds):
            await readable.wait()
    finally:
        loop.remove_reader(client)
    return client.recv(5, socket.MSG_PEEK) in _PLAIN


def _reject(client: socket.socket, secure: bool) -> None:
    """Send 503 on a plain connection, and close it; a TLS connection is closed without a response."""
    body = StatusError(503, "ServiceUnavailable", "too many connections are open; try again").body()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\n"
    text = f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body
    _close_with(client, b"" if secure else text)


def _close_with(client: socket.socket, response: bytes) -> None:
    with client, contextlib.suppress(OSError):
        if response:
            client.setblocking(False)
            client.send(response)
            client.shutdown(socket.SHUT_WR)
            client.recv(64 * 1024)  # unread input at close would reset the connection and discard the response
