"""One connection, and what it gets when it does not speak HTTP. The parser and the keep-alive are aiohttp's.

Rules for this file:
- What cannot be read is answered with a Status and closed, and is no event for the log: anybody on this machine can
  send it. What was sent is not repeated: it may hold a token.
- An exception that is not the client's doing is logged as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from trainyard.server.answers import cut, warning
from trainyard.server.errors import Refused
from trainyard.server.limits import Limits

log = logging.getLogger("trainyard.server")

LINGER = 2.0  # seconds in which the rest of a body that nobody wants may still come
THEIRS = (HttpProcessingError, web.RequestPayloadError, ConnectionError, ClientError, web.PayloadAccessError)
"""What a client can make happen at any time."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """One client."""

    __slots__ = ("_limits",)

    def __init__(self, server: web.Server, limits: Limits) -> None:
        self._limits = limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None means none
            tcp_keepalive=False,
            keepalive_timeout=limits.head,
            lingering_time=LINGER,
            max_line_size=limits.line,
            max_field_size=limits.field,
            max_headers=limits.fields,
            auto_decompress=False,
        )

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise ConnectionResetError("there is nobody to answer")
        if not isinstance(exc, THEIRS):
            self.log_exception("a connection failed", exc_info=exc)
            return refusal(request, Refused(500, "InternalError", "Internal error occurred: see the API server's log"))
        log.debug("what came is not HTTP: %s", type(exc).__name__)
        return refusal(request, _unreadable(exc, self._limits), close=True)

    def log_exception(self, *words: Any, **more: Any) -> None:
        error = more.get("exc_info")
        if isinstance(error, THEIRS):
            log.debug("a connection ended: %s", type(error).__name__)
        else:
            log.error(*words, **more)


def serving(handle: Handle) -> web.Server:
    """All connections of one server. Whoever hangs up ends what he asked for."""
    return web.Server(handle, handler_cancellation=True)


def _unreadable(exc: BaseException, limits: Limits) -> Refused:
    if isinstance(exc, LineTooLong) or "Too many headers" in str(exc):
        text = f"the head of the request is too large: {limits.line} bytes for its first line, {limits.field} for a "
        return Refused(431, "RequestHeaderFieldsTooLarge", f"{text}header, and {limits.fields} headers are taken")
    return Refused(400, "BadRequest", "the request is not HTTP/1.1, or names no Host")


def refusal(request: web.BaseRequest, refused: Refused, close: bool = False) -> web.Response:
    """The Status that answers a request. Raises ConnectionResetError when another answer has begun: what breaks off in
    its midst is broken off, for a second head would be read as a part of it."""
    if request.writer.output_size > 0:
        raise ConnectionResetError("half an answer has gone")
    return status_response(refused, close)


def status_response(refused: Refused, close: bool = False) -> web.Response:
    headers = {"Cache-Control": "no-cache, private"}
    seconds = (refused.details or {}).get("retryAfterSeconds")
    if seconds:
        headers["Retry-After"] = str(seconds)
    response = web.Response(body=refused.body(), status=refused.code, headers=headers, content_type="application/json")
    for text in cut(refused.warnings):
        response.headers.add("Warning", warning(text))
    if close or refused.code in (408, 413):
        response.force_close()
    return response
