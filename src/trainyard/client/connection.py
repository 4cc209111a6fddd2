"""One HTTP/1.1 connection to an API server: an asyncio protocol around the parser of httptools.

A request on it costs half the CPU that it costs through aiohttp's client (bench/client.py: 38 us instead of 72).

Rules for this file:
- One request at a time. The caller sends the next one after the response of the last is complete.
- A response is read as it arrives. A body that nobody reads stops the reading from the socket at `MAX_BUFFERED`.
- Any failure closes the connection, and the response raises `Unavailable`, with the request in its message.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator
from typing import cast

import httptools

from trainyard.client.errors import Unavailable

MAX_BUFFERED = 1 << 20  # bytes of a body that have arrived and have not been read
MAX_HEADER_BYTES = 1 << 16


class Response:
    """The response of one request, while it arrives. `status` and `raw_headers` are set when `head` returns."""

    __slots__ = (
        "_body",
        "_connection",
        "_error",
        "_is_read_whole",
        "_label",
        "_size",
        "_waiter",
        "complete",
        "raw_headers",
        "status",
    )

    def __init__(self, connection: Connection, label: str) -> None:
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        self._connection, self._label = connection, label
        self._body: list[bytes] = []
        self._size = 0
        self._is_read_whole = False  # the reader waits for the end, not for the next part
        self._error: Unavailable | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with names as in `Retry-After`. Read for a few responses only: to decode them was 2 % of the
        CPU of an operator."""
        return {name.decode("latin-1").title(): value.decode("latin-1") for name, value in self.raw_headers}

    async def head(self) -> None:
        """Wait for the status code and the headers. Raises Unavailable."""
        while not self.status:
            await self._wait()

    async def read(self) -> bytes:
        """The whole body, when it has arrived. Raises Unavailable."""
        self._is_read_whole = True
        self._connection.resume()
        while not self.complete:
            await self._wait()
        return b"".join(self._body)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in chunks as received. Raises Unavailable."""
        while True:
            if self._body:
                body, self._body, self._size = self._body, [], 0
                self._connection.resume()
                for chunk in body:
                    yield chunk
            elif self.complete:
                return
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Wait for the next part. Raises Unavailable when there is none."""
        if self._error is not None:
            raise self._error
        self._waiter = self._connection.loop.create_future()
        await self._waiter

    def begin(self, status: int) -> None:
        """The headers have arrived."""
        self.status = status
        if not self._is_read_whole:
            self.wake()

    def add_body(self, chunk: bytes) -> bool:
        """Add a part of the body. Returns whether so much is unread that no more should be received."""
        self._body.append(chunk)
        if self._is_read_whole:
            return False
        self._size += len(chunk)
        self.wake()
        return self._size > MAX_BUFFERED

    def wake(self) -> None:
        """Let the reader look at what has arrived."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, reason: str, message: str) -> None:
        """End the response with an error, after the parts that have arrived."""
        if not self.complete and self._error is None:
            self._error = Unavailable(0, reason, f"{self._label}: {message}")
            self.wake()


class Connection(asyncio.Protocol):
    """A connection that is open. `tls`: the context of its TLS session, None for plain HTTP. Times of the event loop:
    `last_used`, when its last response was complete, 0.0 before; `deadline`, when it is closed if its response has not
    ended."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.loop = asyncio.get_running_loop()  # kept: before Python 3.12 each call of this function is a system call
        self.last_used = 0.0
        self.deadline = float("inf")
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: Response | None = None
        self._paused = False
        self._header_bytes = 0

    @property
    def transport(self) -> asyncio.Transport:
        """The asyncio transport."""
        if self._transport is None:
            raise RuntimeError("the connection is not open")
        return self._transport

    def send(self, request: bytes, label: str) -> Response:
        """Write a request, in this step of the event loop. `label` names it in errors."""
        response = self._response = Response(self, label)
        if self.closed:
            response.fail("ConnectionLost", "the connection is closed")
        else:
            self.transport.write(request)
        return response

    @property
    def closed(self) -> bool:
        """Whether no request can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether the last response is complete and the next request can be sent."""
        return self._response is None and not self.closed

    def close(self, reason: str = "ConnectionLost", message: str = "the connection was closed") -> None:
        """Close the connection at once; a response that is not complete raises Unavailable. Idempotent."""
        response, self._response = self._response, None
        if response is not None:
            response.fail(reason, message)
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Receive again."""
        if self._paused and not self.closed:
            self._paused = False
            self.transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """By asyncio, and by the caller after `loop.start_tls`."""
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are no subclass

    def data_received(self, data: bytes) -> None:
        """Parse. Bytes without a request are an error: some load balancers send 408 before they close."""
        if self._response is None:
            return self.close()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close(message=f"the response is not HTTP/1.1 ({error})")

    def connection_lost(self, error: Exception | None) -> None:
        """A body without a length ends here; any other response is cut off."""
        response = self._response
        if response is not None and response.status and error is None and _ends_with_connection(response.headers):
            self.on_message_complete()
        self.close(message=error_message(error) if error else "the server closed the connection")

    # httptools.HttpResponseParser

    def on_message_begin(self) -> None:
        """Refuse a second response to the same request."""
        if self._response is None:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            self.close(message=f"the headers of the response are over {MAX_HEADER_BYTES} bytes")
        elif self._response is not None:
            self._response.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the response, unless it is an interim one (1xx)."""
        self._header_bytes = 0
        if self._response is None:
            return
        if (status := self._parser.get_status_code()) >= 200:
            self._response.begin(status)
        else:
            self._response.raw_headers.clear()

    def on_body(self, chunk: bytes) -> None:
        """Pass on a part of the body."""
        if self._response is not None and self._response.add_body(chunk) and not self._paused and not self.closed:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the response; close the connection if the server will."""
        response = self._response
        if response is None or not response.status:
            return
        self._response = None
        response.complete = True
        self.last_used = self.loop.time()
        self.resume()
        if not self._parser.should_keep_alive():
            self.close()
        response.wake()


def _ends_with_connection(headers: dict[str, str]) -> bool:
    return "Content-Length" not in headers and "Transfer-Encoding" not in headers


def error_message(error: Exception) -> str:
    """The message of a connection error, without numbers and addresses: "connection refused"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the server answers without TLS; use http:// in its URL"
    if number := re.search(r"\[Errno (\d+)\]", str(error)):  # asyncio puts the errors of several addresses into one
        return os.strerror(int(number[1])).lower()
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
