"""What the server sends back: a response, or the events of a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.conformance.mutations import Mutation
from trainyard.objects import decode


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    code: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    request: str = field(default="", compare=False)  # for messages: method, path and query

    @property
    def json(self) -> Any:
        return decode(self.body)

    def expect(self, *codes: int) -> Any:
        """The decoded body. Raises AssertionError unless the status code is one of these (any 2xx by default)."""
        is_expected = self.code in codes if codes else 200 <= self.code < 300
        assert is_expected, f"{self.request}: {self.code} {self.body[:1000]!r}, expected {codes or '2xx'}"
        return self.json

    def expect_error(self, code: int, reason: str, *fragments: str) -> Any:
        """The decoded Status. Raises AssertionError unless it has this code and reason, and `words` in its message."""
        status = self.expect(code)
        assert status["kind"] == "Status" and status["apiVersion"] == "v1", status
        assert status["status"] == "Failure" and status["code"] == code, status
        assert status.get("reason") == reason, status
        for fragment in fragments:
            assert fragment in status["message"], f"{fragment!r} is not in {status['message']!r}"
        return status


class WatchStream:
    """The events of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse, mutation: Mutation | None, timeout: float) -> None:
        self._response, self._mutation, self._timeout = response, mutation, timeout
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def next(self, timeout: float | None = None) -> Any:
        """The next event, decoded. Raises TimeoutError, and EOFError when the watch has ended."""
        async with asyncio.timeout(timeout or self._timeout):
            line = await self._response.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        if self._mutation is not None:
            line = self._mutation.mutated_response(200, {}, line)[2]
        return decode(line)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next `count` events, as (type, name of the object)."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def read_until(self, matches: Callable[[Any], bool]) -> Any:
        """The first event that matches."""
        while True:
            event = await self.next()
            if matches(event):
                return event

    async def rest(self) -> list[Any]:
        """All events until the server ends the watch."""
        events: list[Any] = []
        while True:
            try:
                events.append(await self.next())
            except EOFError:
                return events
