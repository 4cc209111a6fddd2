"""The interface of a transport to an API server: HTTP (http.py), or calls to a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trainyard.client.credentials import Identity
from trainyard.client.request import ApiRequest

BeforeSend = Callable[[ApiRequest], None]


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
    """Connections to one API server."""

    def open(
        self, request: ApiRequest, identity: Identity, seconds: float | None, guard: BeforeSend | None, *, streams: bool
    ) -> AbstractAsyncContextManager[ApiResponse]:
        """Send a request; its response can be read inside the context.

        seconds: the total timeout, from the connection to the last byte; None for no timeout. guard: called with the
        request immediately before it is sent; an exception that it raises cancels the request and propagates. streams:
        the response may last (watch, logs), so it does not use a connection of the shared pool.
        Raises Unavailable when the connection fails, breaks or times out.
        """

    async def close(self) -> None:
        """Close every connection. A response that is still being read raises Unavailable."""
