"""One client connection, and the response to malformed HTTP. Parser and keep-alive are aiohttp's.

Rules for this file:
- Malformed requests get a Status and the connection is closed. They are not logged as errors, since any local process
  can send them. The response does not repeat what was sent: it may contain a token.
- An exception that was not caused by the client is logged as an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from trainyard.server.http.limits import Limits
from trainyard.server.model.errors import StatusError

log = logging.getLogger("trainyard.server")

LINGER_SECONDS = 2.0  # seconds to read and discard the rest of a request body that is not used
CLIENT_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionError, ClientError, web.PayloadAccessError)
"""Exceptions that a client can cause at any time."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """The protocol of one client connection, with the limits of `Limits`."""

    __slots__ = ("_limits",)

    def __init__(self, server: web.Server, limits: Limits) -> None:
        self._limits = limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None means none
            tcp_keepalive=False,
            keepalive_timeout=limits.head_seconds,
            lingering_time=LINGER_SECONDS,
            max_line_size=limits.max_line,
            max_field_size=limits.max_field,
            max_headers=limits.max_fields,
            auto_decompress=False,
        )

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer bytes that are no HTTP request, and errors of the handler, with a Status."""
        if isinstance(exc, ConnectionError):
            raise ConnectionResetError("the client has closed the connection")
        if not isinstance(exc, CLIENT_ERRORS):
            self.log_exception("a connection failed", exc_info=exc)
            return error_response(
                request, StatusError(500, "InternalError", "Internal error occurred: see the API server's log")
            )
        log.debug("not an HTTP request: %s", type(exc).__name__)
        return error_response(request, _unreadable(exc, self._limits), close=True)

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log the error, at level debug when the client caused it."""
        error = kwargs.get("exc_info")
        if isinstance(error, CLIENT_ERRORS):
            log.debug("a connection ended: %s", type(error).__name__)
        else:
            log.error(*args, **kwargs)


def connection_factory(handle: Handle) -> web.Server:
    """The connection factory of one server. A request is cancelled when its client disconnects."""
    return web.Server(handle, handler_cancellation=True)


def _unreadable(exc: BaseException, limits: Limits) -> StatusError:
    if isinstance(exc, LineTooLong) or "Too many headers" in str(exc):
        text = (
            f"the head of the request is too large: {limits.max_line} bytes for its first line,"
            f" {limits.max_field} for a header, and {limits.max_fields} headers are taken"
        )
        return StatusError(431, "RequestHeaderFieldsTooLarge", text)
    return StatusError(400, "BadRequest", "the request is not HTTP/1.1, or names no Host")


def error_response(request: web.BaseRequest, refused: StatusError, close: bool = False) -> web.Response:
    """The Status response to a request. Raises ConnectionResetError when part of a response has been sent already: the
    connection must then break, since the client would read a second head as part of the body."""
    if request.writer.output_size > 0:
        raise ConnectionResetError("part of the response has been sent")
    return _status_response(refused, close)


def _status_response(refused: StatusError, close: bool = False) -> web.Response:
    headers = {"Cache-Control": "no-cache, private"}
    retry_after = (refused.details or {}).get("retryAfterSeconds")
    if retry_after:
        headers["Retry-After"] = str(retry_after)
    response = web.Response(body=refused.body(), status=refused.code, headers=headers, content_type="application/json")
    if close or refused.code in (408, 413):
        response.force_close()
    return response
