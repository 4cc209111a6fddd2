"""What carries a request to an API server, and its answer back: HTTP (http.py), or a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trainyard.client.credentials import Identity
from trainyard.client.request import Request

Guard = Callable[[Request], None]


class Reply(Protocol):
    """An answer that has begun."""

    @property
    def status(self) -> int:
        """The code of HTTP."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """The whole body."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in chunks as they come, until the server ends it."""


class Transport(Protocol):
    """Connections to one API server."""

    def open(
        self, request: Request, identity: Identity, seconds: float | None, guard: Guard | None, *, streams: bool
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request, and read its answer inside of the context.

        seconds: from the connection to the last byte, None for ever. guard: called with the request at the last moment
        before it is sent; what it raises is raised instead. streams: the answer may last, so it shares no connection.
        Raises Unavailable for whatever breaks on the way.
        """

    async def close(self) -> None:
        """Close every connection. Answers that are still read end with Unavailable."""
