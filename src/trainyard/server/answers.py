"""A whole answer on its way out: headers, warnings, gzip where it was asked for, and a client who must take it.

Rules for this file:
- gzip as the real server has it: from 128 KiB on, at its fastest level, and in a thread, so that others do not wait.
- A client who does not take an answer away in time is cut off; nobody else waits for that.
- A header holds one line of printable characters, whatever is said in it.
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

from trainyard.server.errors import printable
from trainyard.server.requests import JSON, Response

log = logging.getLogger("trainyard.server")

GZIP_FROM = 128 * 1024
"""Bytes of a body."""
LARGE = 64 * 1024  # bytes that a socket may not take at once
LONGEST_WARNING, LONGEST_WARNINGS = 256, 4096  # characters of one, when all of them together are so long
_CACHE = "no-cache, private"


_USUAL = {
    code: f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nCache-Control: {_CACHE}\r\nContent-Type: {JSON}".encode()
    for code in (200, 201)
}
_SERVER = SERVER_SOFTWARE.encode()


class Usual(web.StreamResponse):
    """An answer as nearly all are: JSON, not large, over a connection that stays. aiohttp would make the same bytes of
    headers that can still be changed, and that alone takes a tenth of the time of a write."""

    def __init__(self, answer: Response) -> None:
        super().__init__(status=answer.code)
        self._answer = answer

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        self._keep_alive, self._writer = True, request.writer
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        start, date, body = _USUAL[self.status], rfc822_formatted_time().encode(), self._answer.body
        await self._writer.write_eof(
            b"%b\r\nContent-Length: %d\r\nDate: %b\r\nServer: %b\r\n\r\n%b" % (start, len(body), date, _SERVER, body)
        )


def _is_usual(request: web.BaseRequest, answer: Response) -> bool:
    told = answer.headers or answer.warnings or answer.content_type != JSON or answer.code not in _USUAL
    stays = request.version == HttpVersion11 and request.keep_alive and request.method != "HEAD"
    return stays and not told and len(answer.body) < LARGE


async def send(request: web.BaseRequest, answer: Response, seconds: float) -> web.StreamResponse:
    """The answer as aiohttp has it; a large one has been taken away by then, within that time."""
    if _is_usual(request, answer):
        return Usual(answer)
    body = answer.body
    response = web.Response(status=answer.code, content_type=answer.content_type, headers={"Cache-Control": _CACHE})
    for name, value in answer.headers.items():
        response.headers[name] = printable(value)
    for text in cut(answer.warnings):
        response.headers.add("Warning", warning(text))
    if len(body) >= GZIP_FROM and takes_gzip(request.headers.get("Accept-Encoding", "")):
        body = await asyncio.to_thread(_packed, body)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    response.body = body
    if len(body) >= LARGE:
        await taken(request, response, seconds)
    return response


async def taken(request: web.BaseRequest, response: web.Response, seconds: float) -> None:
    """Send it all. Raises ConnectionResetError when the client does not take it."""
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        cut_off(request)
        raise ConnectionResetError("the client does not take its answer") from None


def cut_off(request: web.BaseRequest) -> None:
    """End the connection; whoever waits for the client hears that it has gone."""
    log.warning("a client was cut off, it does not take its answer: path=%r", request.rel_url.raw_path)
    if request.transport is not None:
        request.transport.abort()


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding names gzip, and not to refuse it."""
    for one in accepted.split(","):
        name, _, weight = one.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def warning(text: str) -> str:
    """The value of a Warning header: one sentence, quoted."""
    quoted = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def cut(texts: tuple[str, ...]) -> list[str]:
    """Each once; shortened when together they are too long, and then only as many as fit."""
    if not texts:
        return []
    once = list(dict.fromkeys(texts))
    if sum(map(len, once)) <= LONGEST_WARNINGS:
        return once
    return [text[:LONGEST_WARNING] for text in once][: LONGEST_WARNINGS // LONGEST_WARNING]


def _packed(body: bytes) -> bytes:
    return zlib.compress(body, level=1, wbits=31)
