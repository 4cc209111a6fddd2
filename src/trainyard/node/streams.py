"""Two connections made one, and the proxy through which pods reach the outside world.

Rules: bytes are passed on as they come, each direction ends by itself; the proxy speaks CONNECT and plain HTTP with one
request per connection, and goes through the runner's own proxy where the runner has one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import unquote, urlsplit

_PIECE = 1 << 16
_PATIENCE = 30.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Inside = Callable[[str, int], Awaitable[Streams | None]]
"""A connection to a host and port of the cluster; None for a host that is not in it."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def splice(one: Streams, other: Streams) -> None:
    """Pass bytes both ways until both ends have ended, or one is torn, then close both."""
    try:
        with contextlib.suppress(OSError):
            await asyncio.gather(_pump(one[0], other[1]), _pump(other[0], one[1]))
    finally:
        hang_up(one[1])
        hang_up(other[1])


def hang_up(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dial: Callable[[], Awaitable[Streams | None]]
) -> None:
    """Serve one accepted connection by one that `dial` opens; without one, close it at once."""
    try:
        other = await dial()
    except OSError:
        other = None
    if other is None:
        writer.transport.abort()
        return
    await splice((reader, writer), other)


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inside: Inside) -> None:
    """Serve one connection to the proxy. Programs whose no_proxy knows no networks ask it for the cluster too."""
    try:
        async with asyncio.timeout(_PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            other, first, reply = await _open(head, inside)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        await _refuse(writer, "400 Bad Request", "the proxy understands CONNECT and http:// requests")
        return
    except (OSError, TimeoutError) as error:
        await _refuse(writer, "502 Bad Gateway", str(error) or "no answer in time")
        return
    if first:
        other[1].write(first)
    if reply:
        writer.write(reply)
    await splice((reader, writer), other)


async def _refuse(writer: asyncio.StreamWriter, status: str, why: str) -> None:
    with contextlib.suppress(OSError):
        body = f"{why}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
    hang_up(writer)


async def _open(head: bytes, inside: Inside) -> tuple[Streams, bytes, bytes]:
    """The connection that a request asks for, what to send on it first, and what to answer at once."""
    line, _, rest = head.decode("latin-1").partition("\r\n")
    method, target, _ = line.split(" ", 2)
    tunnel = method == "CONNECT"
    url = urlsplit(f"//{target}" if tunnel else target)
    if not url.hostname or not (tunnel or url.scheme == "http"):
        raise ValueError(target)
    port = url.port or (443 if tunnel else 80)
    near = await inside(url.hostname, port)
    upstream = None if near else _upstream("https" if tunnel else "http", url.hostname)
    if upstream:
        address, credentials = upstream
        extra = f"Proxy-Authorization: Basic {credentials}\r\n" if credentials else ""
        streams = await asyncio.open_connection(*address)
        return streams, f"{line}\r\n{extra}{_without_hops(rest, tunnel)}".encode("latin-1"), b""
    streams = near or await asyncio.open_connection(url.hostname, port)
    if tunnel:
        return streams, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
    path = url.path or "/"
    path += f"?{url.query}" if url.query else ""
    return streams, f"{method} {path} HTTP/1.1\r\n{_without_hops(rest, False)}".encode("latin-1"), b""


def _without_hops(rest: str, tunnel: bool) -> str:
    """The header without what is between two neighbours only. A plain connection serves one request."""
    lines = [
        line
        for line in rest.split("\r\n")
        if line and not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))
    ]
    return "\r\n".join([*lines, *([] if tunnel else ["Connection: close"])]) + "\r\n\r\n"


def _upstream(scheme: str, host: str) -> tuple[tuple[str, int], str] | None:
    """The runner's own proxy for that host: its address and credentials."""
    from urllib.request import getproxies, proxy_bypass  # it loads all of urllib: where no pod asks, nobody waits

    found = getproxies().get(scheme)
    if not found or proxy_bypass(host):
        return None
    url = urlsplit(found if "://" in found else f"http://{found}")
    if not url.hostname:
        return None
    credentials = ""
    if url.username:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    return (url.hostname, url.port or 80), credentials
