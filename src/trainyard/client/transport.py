"""The interface of a transport to an API server: HTTP (http.py), or calls to a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from trainyard.client.credentials import Identity
from trainyard.client.request import ApiRequest

POOL_SIZE = 64  # connections
BeforeSend = Callable[[ApiRequest], None]


class WholeResponse(NamedTuple):
    """A response with its whole body. The names of `headers` are written as in `Retry-After`; those of a 2xx response
    may be left out."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ApiResponse(Protocol):
    """A response whose headers have been received."""

    @property
    def status(self) -> int:
        """The HTTP status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The response headers, whose names are case-insensitive."""

    async def read(self) -> bytes:
        """The whole body."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in chunks as received, until the server ends it."""


class Transport(Protocol):
    """Connections to one API server.

    Both ways to send a request have these parameters. seconds: the total timeout, from the connection to the last byte;
    None for no timeout. guard: called with the request immediately before it is sent; an exception that it raises
    cancels the request and propagates. Both raise Unavailable when the connection fails, breaks or times out.
    """

    async def fetch(
        self, request: ApiRequest, identity: Identity, seconds: float, guard: BeforeSend | None
    ) -> WholeResponse:
        """Send a request and return its response."""

    def stream(
        self, request: ApiRequest, identity: Identity, seconds: float | None, guard: BeforeSend | None
    ) -> AbstractAsyncContextManager[ApiResponse]:
        """Send a request whose response may last (watch, logs) and can be read inside the context. It does not use a
        connection of the shared pool."""

    async def close(self) -> None:
        """Close every connection. A response that is still being read raises Unavailable."""
