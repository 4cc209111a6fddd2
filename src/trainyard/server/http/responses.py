"""Sends a complete HTTP response: headers, Warning headers, gzip if accepted, and a deadline for the client to read it.

Rules for this file:
- gzip as in kube-apiserver: for bodies of 128 KiB and more, at the fastest level; in a thread, so that the event loop
  is not blocked.
- A client that does not read its response in time is disconnected; no other request waits for it.
- A header value is one line of printable characters, whatever text it is made from.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from http import HTTPStatus

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from trainyard.server.model.errors import printable
from trainyard.server.model.requests import JSON, Response

log = logging.getLogger("trainyard.server")

GZIP_FROM = 128 * 1024
"""Bytes of a body."""
LARGE = 64 * 1024  # bytes of a body that may not fit into the socket buffer
LONGEST_WARNING, LONGEST_WARNINGS = 256, 4096  # characters: of one warning, once all of them exceed the second
_CACHE = "no-cache, private"


_STATUS_LINES = {
    code: f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nCache-Control: {_CACHE}\r\nContent-Type: {JSON}".encode()
    for code in (200, 201)
}
_SERVER = SERVER_SOFTWARE.encode()


class PlainJsonResponse(web.StreamResponse):
    """The common response: JSON, not large, on a keep-alive connection. aiohttp would produce the same bytes from a
    mutable header map, and that alone takes a tenth of the time of a write."""

    def __init__(self, answer: Response) -> None:
        super().__init__(status=answer.code)
        self._answer = answer

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send nothing yet: `write_eof` sends head and body at once."""
        self._keep_alive, self._writer = True, request.writer
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the head and the body in one write."""
        start, date, body = _STATUS_LINES[self.status], rfc822_formatted_time().encode(), self._answer.body
        await self._writer.write_eof(
            b"%b\r\nContent-Length: %d\r\nDate: %b\r\nServer: %b\r\n\r\n%b" % (start, len(body), date, _SERVER, body)
        )


def _is_usual(request: web.BaseRequest, answer: Response) -> bool:
    special = answer.headers or answer.warnings or answer.content_type != JSON or answer.code not in _STATUS_LINES
    keep_alive = request.version == HttpVersion11 and request.keep_alive and request.method != "HEAD"
    return keep_alive and not special and len(answer.body) < LARGE


async def send(request: web.BaseRequest, answer: Response, seconds: float) -> web.StreamResponse:
    """The response for aiohttp. A body of LARGE bytes or more has already been sent when this returns; raises
    ConnectionResetError when the client does not read it within `seconds`."""
    if _is_usual(request, answer):
        return PlainJsonResponse(answer)
    body = answer.body
    response = web.Response(status=answer.code, content_type=answer.content_type, headers={"Cache-Control": _CACHE})
    for name, value in answer.headers.items():
        response.headers[name] = printable(value)
    for text in limited_warnings(answer.warnings):
        response.headers.add("Warning", warning_header(text))
    if len(body) >= GZIP_FROM and accepts_gzip(request.headers.get("Accept-Encoding", "")):
        body = await asyncio.to_thread(_gzipped, body)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    response.body = body
    if len(body) >= LARGE:
        await send_whole(request, response, seconds)
    return response


async def send_whole(request: web.BaseRequest, response: web.Response, seconds: float) -> None:
    """Send the whole response. Raises ConnectionResetError when the client does not read it within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        abort(request)
        raise ConnectionResetError("the client does not take its answer") from None


def abort(request: web.BaseRequest) -> None:
    """Abort the connection; pending reads and writes on it then fail."""
    log.warning("connection closed, its client does not read the response: path=%r", request.rel_url.raw_path)
    if request.transport is not None:
        request.transport.abort()


def accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip (named, and not with q=0)."""
    for coding in accepted.split(","):
        name, _, weight = coding.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def warning_header(text: str) -> str:
    """The value of a Warning header (code 299) with this text, quoted."""
    quoted = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def limited_warnings(texts: tuple[str, ...]) -> list[str]:
    """The warnings without duplicates. When all together exceed LONGEST_WARNINGS characters, each is cut to
    LONGEST_WARNING and only as many as fit are returned."""
    if not texts:
        return []
    unique = list(dict.fromkeys(texts))
    if sum(map(len, unique)) <= LONGEST_WARNINGS:
        return unique
    return [text[:LONGEST_WARNING] for text in unique][: LONGEST_WARNINGS // LONGEST_WARNING]


def _gzipped(body: bytes) -> bytes:
    return zlib.compress(body, level=1, wbits=31)
