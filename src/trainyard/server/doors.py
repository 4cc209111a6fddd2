"""Where connections come from: listening sockets on loopback.

Rules for this file:
- Loopback only. A name is resolved first, all its addresses must be loopback, and it is the address that is bound.
- One connection is accepted at a time, and others get a turn in between.
- When descriptors are used up, clients wait in the kernel's queue and are served as soon as there is one; what the
  server has already goes on. It is said once a minute.
- Past the limit of connections a client is sent away at once, so that what is left over stays for everything else.
- Who speaks plain HTTP where TLS is spoken hears so in plain words: Go's, for tools know them.
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

from trainyard.server.errors import Refused
from trainyard.server.limits import Limits

log = logging.getLogger("trainyard.server")

BACKLOG = 1024
TLS_BUFFER = 32 * 1024
"""Bytes that a TLS connection holds to read into. asyncio's own 256 KiB would make 5,000 watches 1.2 GiB."""
PAUSE = 0.1  # seconds until the next try, when nothing could be accepted
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SAY_EVERY = 60.0
_PLAIN = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"PATCH", b"DELET")
_WRONG_DOOR = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Doors:
    """`make` is asked for a protocol for each connection; `count` says how many there are."""

    def __init__(self, make: Callable[[], asyncio.Protocol], count: Callable[[], int], limits: Limits) -> None:
        self._make, self._count, self._limits = make, count, limits
        self._most = limits.most_connections()
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._said = -SAY_EVERY

    async def listen(self, host: str, port: int, context: asyncio.Future[ssl.SSLContext] | None) -> str:
        """Open a door; its address, as a URL has it. Clients wait until there is a context. Raises ValueError where
        others could come in, and OSError."""
        family, address = await loopback(host)
        if context is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER  # for this process: there is no way to ask for it
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind((address, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            why = (error.strerror or str(error)).lower()
            raise OSError(error.errno, f"cannot listen on {address} port {port}: {why}") from None
        self._listeners.append(listener)
        self._begin(self._accept(listener, context))
        bound = listener.getsockname()[1]
        return f"[{address}]:{bound}" if family == socket.AF_INET6 else f"{address}:{bound}"

    async def close(self) -> None:
        """Nobody comes in any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, context: asyncio.Future[ssl.SSLContext] | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._say("no descriptors are left, new connections wait; raise `ulimit -n`")
                    await asyncio.sleep(PAUSE)
                continue  # else the client has gone already
            if self._count() + len(self._tasks) - len(self._listeners) >= self._most:
                self._say(f"{self._most} connections are open, more are refused; raise `ulimit -n`")
                _send_away(client, secure=context is not None)
            else:
                self._begin(self._welcome(client, context))
            await asyncio.sleep(0)

    async def _welcome(self, client: socket.socket, context: asyncio.Future[ssl.SSLContext] | None) -> None:
        loop, seconds = asyncio.get_running_loop(), self._limits.handshake if context else None
        try:
            if context is not None and await _speaks_plainly(client, self._limits.handshake):
                return _hang_up(client, _WRONG_DOOR)
            secure = await asyncio.shield(context) if context else None
            await loop.connect_accepted_socket(self._make, client, ssl=secure, ssl_handshake_timeout=seconds)
        except asyncio.CancelledError:
            client.close()  # nobody else may have it yet
            raise
        except (OSError, TimeoutError) as error:  # no TLS, too slow, or gone
            log.debug("a connection did not begin: %s", type(error).__name__)
            client.close()

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said >= SAY_EVERY:
            self._said = now
            log.warning(text)


async def loopback(host: str) -> tuple[socket.AddressFamily, str]:
    """The address to bind for a name or an address. Raises ValueError when others could reach it."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    places = [str(where[4][0]) for where in found]
    elsewhere = [place for place in places if not ipaddress.ip_address(place.partition("%")[0]).is_loopback]
    if elsewhere or not found or not host:
        what = f"{host or 'every address'}, which is {elsewhere[0]}" if elsewhere and elsewhere[0] != host else host
        raise ValueError(f"the embedded API server listens on loopback only, not on {what}; use 127.0.0.1")
    family, _, _, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, str(place[0])


async def _speaks_plainly(client: socket.socket, seconds: float) -> bool:
    """Whether the first bytes, which stay where they are, are HTTP. Raises TimeoutError, OSError."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(client, came.set)
    try:
        async with asyncio.timeout(seconds):
            await came.wait()
    finally:
        loop.remove_reader(client)
    return client.recv(5, socket.MSG_PEEK) in _PLAIN


def _send_away(client: socket.socket, secure: bool) -> None:
    """A word where it can be read, and the end."""
    body = Refused(503, "ServiceUnavailable", "too many connections are open; try again").body()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\n"
    text = f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body
    _hang_up(client, b"" if secure else text)


def _hang_up(client: socket.socket, last: bytes) -> None:
    with client, contextlib.suppress(OSError):
        if last:
            client.setblocking(False)
            client.send(last)
            client.shutdown(socket.SHUT_WR)
            client.recv(64 * 1024)  # what is unread at the end would take the answer back
