"""The connections of a listener to which every local user may connect, and the requests of those who have a right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aiohttp import web

from trainyard.server.http.connections import Connection, Handle
from trainyard.server.http.limits import Limits


class Connections:
    """`handle` answers a request. `is_cancelled`: the handler, too, ends when its client disconnects."""

    def __init__(self, handle: Handle, limits: Limits, *, is_cancelled: bool = False) -> None:
        self._server, self._limits = web.Server(handle, handler_cancellation=is_cancelled), limits
        self._admitted: set[web.RequestHandler] = set()

    def new_connection(self) -> Connection:
        """The protocol of a connection that was accepted."""
        return Connection(self._server, self._limits)

    def __len__(self) -> int:
        return len(self._server.connections)

    @contextlib.contextmanager
    def admitted(self, request: web.BaseRequest) -> Iterator[None]:
        """While a request is answered that had a right, its connection is not idle."""
        self._admitted.add(request.protocol)
        try:
            yield
        finally:
            self._admitted.discard(request.protocol)

    def close_idle(self) -> bool:
        """Close the oldest idle connection; False if there is none. So nobody keeps the owner out by connections that
        have no right."""
        for connection in self._server.connections:
            transport = connection.transport
            if connection not in self._admitted and transport is not None and not transport.is_closing():
                transport.abort()
                return True
        return False

    async def close(self, seconds: float) -> None:
        """Close all connections; requests in progress have `seconds` to finish."""
        await self._server.shutdown(seconds)
