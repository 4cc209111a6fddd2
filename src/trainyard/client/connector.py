"""Opens connections to an API server: TCP, a proxy if the kubeconfig has one, TLS."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from trainyard.client.connection import Connection
from trainyard.client.errors import Unavailable
from trainyard.client.tls import system_context

CONNECT_TIMEOUT = 10.0
TLS_TIMEOUT = 60.0
EYEBALLS_DELAY = 0.25  # seconds until the next address of the host is tried beside the first (RFC 8305)
_NOT_IN_A_HEADER = re.compile(r"[^\x20-\x7e]")


class Connector:
    """Connects to the server of `url`, by the HTTP proxy of the URL `proxy` ("" for none). `server_name`: the name in
    the server's certificate, "" for that in `url`."""

    def __init__(self, url: str, proxy: str = "", server_name: str = "") -> None:
        self._url = urlsplit(url)
        self._proxy = urlsplit(proxy) if proxy else None
        self._server_name = server_name or self._url.hostname or ""
        self._is_secure = self._url.scheme == "https"
        forwards = self._proxy is not None and not self._is_secure
        self.target_prefix = url if forwards else self._url.path
        """What precedes the path of each request: a proxy that forwards plain HTTP gets the whole URL."""
        self.headers = {"Host": self._url.netloc.rpartition("@")[2]}
        """The headers of each request that follow from the two URLs."""
        if self._proxy is not None and forwards:
            self.headers |= _proxy_authorization(self._proxy)

    def tls_context(self, own: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """The TLS context of connections, None for plain HTTP. `own`: that of the credentials, None for the system's
        CA certificates."""
        return (own or system_context()) if self._is_secure else None

    async def connect(self, tls: ssl.SSLContext | None) -> Connection:
        """A new connection. Raises OSError and TimeoutError."""
        connection = await _connect_tcp(self._proxy or self._url)
        if self._proxy is not None:
            if self._proxy.scheme == "https":
                connection = await _start_tls(connection, system_context(), self._proxy.hostname or "")
            if self._is_secure:
                await self._open_tunnel(connection, self._proxy)
        return connection if tls is None else await _start_tls(connection, tls, self._server_name)

    async def _open_tunnel(self, connection: Connection, proxy: SplitResult) -> None:
        """Let the proxy connect to the server. Raises OSError."""
        hostname = self._url.hostname or ""
        host = f"{f'[{hostname}]' if ':' in hostname else hostname}:{_port(self._url)}"
        headers = header_lines({"Host": host, **_proxy_authorization(proxy)})
        try:
            response = connection.send(f"CONNECT {host} HTTP/1.1\r\n{headers}\r\n".encode("ascii"), f"CONNECT {host}")
            await response.head()
            if response.status != 200:
                raise OSError(f"the proxy {proxy.hostname} answered {response.status} to CONNECT {host}")
        except BaseException as error:
            connection.close()
            if isinstance(error, Unavailable):
                raise OSError(error.message) from None
            raise


async def _connect_tcp(url: SplitResult) -> Connection:
    """A TCP connection with keep-alive, which detects a dead peer after about a minute."""
    loop = asyncio.get_running_loop()
    # The loop of uvloop, which only the operator uses, tries one address after the other. One address needs no race. A
    # race that is cancelled after it is won, as by a timeout, leaves its connection to the garbage collector.
    races = isinstance(loop, asyncio.BaseEventLoop) and not _is_address(url.hostname or "")
    options: Any = {"happy_eyeballs_delay": EYEBALLS_DELAY} if races else {}
    connection: Connection
    async with asyncio.timeout(CONNECT_TIMEOUT):
        transport, connection = await loop.create_connection(Connection, url.hostname or "", _port(url), **options)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


async def _start_tls(connection: Connection, tls: ssl.SSLContext, server_name: str) -> Connection:
    """A TLS session over the connection. Raises OSError."""
    secured = Connection(tls)
    transport = await asyncio.get_running_loop().start_tls(
        connection.transport, secured, tls, server_hostname=server_name, ssl_handshake_timeout=TLS_TIMEOUT
    )
    if transport is None:
        raise ConnectionResetError("the server closed the connection during the TLS handshake")
    secured.connection_made(transport)
    return secured


def header_lines(headers: Mapping[str, str]) -> str:
    """The headers as HTTP writes them. Raises ValueError for a value that no header can have; the error does not show
    it, as it may be a token."""
    for name, value in headers.items():
        if _NOT_IN_A_HEADER.search(value):
            raise ValueError(f"the value of the HTTP header {name} holds a line break, or is not ASCII")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    """The header with the user and the password of the proxy's URL; none without them."""
    if not proxy.username:
        return {}
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode()}"}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
