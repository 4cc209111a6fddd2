"""Forwarding between two connections, and the HTTP proxy through which pods connect to the outside.

Rules: bytes are forwarded unchanged, and each direction is closed by itself; the proxy supports CONNECT and plain HTTP
with one request per connection, and uses the node process's own proxy where the node process has one. In the network
*shared* any local user may connect to a Service: what is forwarded has a limit, so that it leaves descriptors for the
rest of the process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

_READ_SIZE = 1 << 16
_CONNECT_SECONDS = 30.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ClusterDialer = Callable[[str, int], Awaitable[Streams | None]]
"""Connects to a host and port in the cluster; returns None for a host outside of it."""


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_READ_SIZE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def forward_both_ways(client: Streams, upstream: Streams) -> None:
    """Forward bytes in both directions until both are at their end, or one connection breaks; then close both."""
    try:
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(client[0], upstream[1]), _copy(upstream[0], client[1]))
    finally:
        _close_writer(client[1])
        _close_writer(upstream[1])


def _close_writer(writer: asyncio.StreamWriter) -> None:
    """Close the connection; no error when it is broken or the event loop is closing."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


class _Forwarded:
    """The connections that `forward` serves in this process, which take two descriptors each."""

    def __init__(self) -> None:
        self._count, self._next_warning = 0, float("-inf")

    @contextlib.contextmanager
    def admitted(self) -> Iterator[bool]:
        """Whether there is room for another one, which lasts as long as this context."""
        limit = forwarded_limit()
        if self._count >= limit and time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + 60
            log.warning("%d connections to Services are open, more are refused; raise `ulimit -n`", limit)
        if self._count >= limit:
            yield False
            return
        self._count += 1
        try:
            yield True
        finally:
            self._count -= 1


def forwarded_limit() -> int:
    """The number of connections that take a fourth of the descriptors of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft // 8


_forwarded = _Forwarded()


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dial: Callable[[], Awaitable[Streams | None]]
) -> None:
    """Forward an accepted connection to the one that `dial` opens; abort it when `dial` returns None or raises OSError,
    and when there are too many."""
    with _forwarded.admitted() as has_room:
        try:
            upstream = await dial() if has_room else None
        except OSError:
            upstream = None
        if upstream is None:
            writer.transport.abort()
            return
        await forward_both_ways((reader, writer), upstream)


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dial_cluster: ClusterDialer) -> None:
    """Serve one connection to the proxy. `dial_cluster`: for cluster addresses, which come from programs whose no_proxy
    does not support networks."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            upstream, request, reply = await _open_upstream(head, dial_cluster)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        await _respond_error(writer, "400 Bad Request", "the proxy understands CONNECT and http:// requests")
        return
    except (OSError, TimeoutError) as error:
        await _respond_error(writer, "502 Bad Gateway", str(error) or "no answer in time")
        return
    if request:
        upstream[1].write(request)
    if reply:
        writer.write(reply)
    await forward_both_ways((reader, writer), upstream)


async def _respond_error(writer: asyncio.StreamWriter, status: str, reason: str) -> None:
    with contextlib.suppress(OSError):
        body = f"{reason}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
    _close_writer(writer)


async def _open_upstream(head: bytes, inside: ClusterDialer) -> tuple[Streams, bytes, bytes]:
    """For the head of a request: the upstream connection, the bytes to send on it first, and the bytes to send to the
    client at once. Raises ValueError, OSError."""
    line, _, rest = head.decode("latin-1").partition("\r\n")
    method, target, _ = line.split(" ", 2)
    tunnel = method == "CONNECT"
    url = urlsplit(f"//{target}" if tunnel else target)
    if not url.hostname or not (tunnel or url.scheme == "http"):
        raise ValueError(target)
    port = url.port or (443 if tunnel else 80)
    cluster_streams = await inside(url.hostname, port)
    upstream = None if cluster_streams else _upstream_proxy("https" if tunnel else "http", url.hostname)
    if upstream:
        address, credentials = upstream
        proxy_header = f"Proxy-Authorization: Basic {credentials}\r\n" if credentials else ""
        streams = await asyncio.open_connection(*address)
        return streams, f"{line}\r\n{proxy_header}{_end_to_end_headers(rest, tunnel)}".encode("latin-1"), b""
    streams = cluster_streams or await asyncio.open_connection(url.hostname, port)
    if tunnel:
        return streams, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
    path = url.path or "/"
    path += f"?{url.query}" if url.query else ""
    return streams, f"{method} {path} HTTP/1.1\r\n{_end_to_end_headers(rest, False)}".encode("latin-1"), b""


def _end_to_end_headers(rest: str, tunnel: bool) -> str:
    """The header without hop-by-hop fields. A connection without tunnel gets `Connection: close`: it serves one
    request."""
    lines = [
        line
        for line in rest.split("\r\n")
        if line and not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))
    ]
    return "\r\n".join([*lines, *([] if tunnel else ["Connection: close"])]) + "\r\n\r\n"


def _upstream_proxy(scheme: str, host: str) -> tuple[tuple[str, int], str] | None:
    """The node process's own proxy for that host: its address and its credentials (base64); None for a direct
    connection."""
    from urllib.request import getproxies, proxy_bypass  # imported here because it loads all of urllib

    proxy_url = getproxies().get(scheme)
    if not proxy_url or proxy_bypass(host):
        return None
    url = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    if not url.hostname:
        return None
    credentials = ""
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    return (url.hostname, url.port or 80), credentials
