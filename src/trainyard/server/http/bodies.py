"""The body of a request, within limits of size and time that hold before and while it is read."""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion11, web

from trainyard.server.model import errors
from trainyard.server.model.errors import StatusError


async def read_body(request: web.BaseRequest, max_size: int, seconds: float) -> bytes:
    """The whole body of at most `max_size` bytes, which has `seconds` to arrive. Raises StatusError 400, 408, 413 or
    417, and ConnectionResetError when the client disconnects."""
    if (request.content_length or 0) > max_size:
        raise _too_large(max_size)
    _send_continue(request)
    try:
        if request.content.is_eof():  # the body arrived with the head, as usual
            body = request.content.read_nowait()
            if len(body) > max_size:
                raise _too_large(max_size)
            return body
        async with asyncio.timeout(seconds):
            return await _read_all(request, max_size)
    except TimeoutError:
        text = f"the body of the request did not arrive within {seconds:g} seconds"
        raise StatusError(408, "Timeout", text) from None
    except web.RequestPayloadError:
        raise errors.bad_request("the body of the request is not what its head says") from None


def _send_continue(request: web.BaseRequest) -> None:
    """Answer `Expect: 100-continue` with 100 Continue. Raises StatusError 417 for any other expectation."""
    expected = request.headers.get("Expect")
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise StatusError(417, "ExpectationFailed", "Expect may say 100-continue and nothing else")
    if request.version >= HttpVersion11 and request.transport is not None and not request.content.is_eof():
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _read_all(request: web.BaseRequest, max_size: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > max_size:
            raise _too_large(max_size)
        parts.append(part)
    return b"".join(parts)


def _too_large(max_size: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {max_size}")
