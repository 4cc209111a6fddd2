"""Bodies and messages that the page server gets from anybody: refused, and not logged."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.page.browsing import Browser
from trainyard.page.access import MAX_BODY
from trainyard.page.http import _subscriptions
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions


@pytest.fixture
async def page_server() -> AsyncIterator[PageServer]:
    """Of a history alone."""
    page_server = PageServer(None, PageOptions("history", "history"))
    await page_server.start()
    yield page_server
    await page_server.stop()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 5000, 400),
        (b'{"token":"\xff"}', 400),
        (b'{"token":"\\ud800"}', 400),
        (b"[]", 400),
        (b"", 400),
        (b'{"token":"' + b"x" * MAX_BODY + b'"}', 413),
        (b"[" * (2 << 20), 413),
    ],
    ids=["nested", "no UTF-8", "half a surrogate", "no object", "empty", "70 kB", "2 MiB"],
)
async def test_an_odd_body_is_refused_and_not_logged(
    page_server: PageServer, caplog: pytest.LogCaptureFixture, body: bytes, status: int
) -> None:
    async with aiohttp.ClientSession() as http:
        headers = {"Content-Type": "application/json"}
        async with http.post(f"{page_server.url}v1/session", data=body, headers=headers) as answer:
            assert (answer.status, list(await answer.json())) == (status, ["error"])
    assert not caplog.records


@pytest.mark.parametrize("query", ["series?points=" + "9" * 5000, "series?points=x", "logs/a?offset=" + "9" * 5000])
async def test_an_odd_number_is_refused_and_not_logged(
    page_server: PageServer, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    async with aiohttp.ClientSession() as http:
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link()) == 200
        assert (await browser.get(f"v1/jobs/any/{query}"))[0] == 400
    assert not caplog.records


async def test_a_body_without_a_length_is_read_to_its_limit(page_server: PageServer) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b"[" * (1 << 16)

    async with aiohttp.ClientSession() as http:
        headers = {"Content-Type": "application/json"}
        async with http.post(f"{page_server.url}v1/session", data=endless(), headers=headers) as answer:
            assert answer.status == 413
    assert sent < 1 << 25


@pytest.mark.parametrize("message", ["[" * 60_000, "{", "\ud800", "[]", '{"subscribe": ', "1e999999"])
def test_an_odd_message_of_a_page_subscribes_to_nothing(message: str) -> None:
    assert _subscriptions(message) is None
