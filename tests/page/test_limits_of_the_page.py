"""What local users can do to the page server who have no session: hold connections."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.page.browsing import Browser
from tests.support.waiting import until_async
from trainyard.page import access, live
from trainyard.page.access import LIMITS
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions


@pytest.fixture
async def page_server() -> AsyncIterator[PageServer]:
    """Of a history alone, which has no jobs."""
    page_server = PageServer(None, PageOptions("history", "history"))
    await page_server.start()
    yield page_server
    await page_server.stop()


async def connect(stack: AsyncExitStack, url: str, sent: bytes = b"") -> asyncio.StreamReader:
    """A connection that the stack closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    stack.callback(writer.close)
    writer.write(sent)
    return reader


def open_count(readers: list[asyncio.StreamReader]) -> int:
    return sum(not reader.at_eof() and reader.exception() is None for reader in readers)


HALF_A_BODY = (
    b"POST /ui/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
)


@pytest.mark.parametrize("sent", [b"", b"GET /ui/", HALF_A_BODY], ids=["nothing", "half a head", "half a body"])
async def test_connections_without_a_right_are_limited_and_keep_nobody_out(
    page_server: PageServer, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        readers = [await connect(stack, page_server.url, sent) for _ in range(3 * LIMITS.max_connections)]
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link()) == 200
        async with browser.live() as page:
            assert (await page.frame("hello"))["cluster"] == "history"
            readers += [await connect(stack, page_server.url, sent) for _ in range(2 * LIMITS.max_connections)]
            await until_async(lambda: open_count(readers) < LIMITS.max_connections, "the others are closed")
            await page.socket.send_json({"subscribe": ["jobs"]})
            await page.frame("jobs")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "page: 96 connections are open, more are refused, or idle ones closed"
    ]


async def test_a_connection_that_says_nothing_is_closed(
    page_server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.page.access.LIMITS", type(LIMITS)(head_seconds=0.1))
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        assert await (await connect(stack, page_server.url)).read() == b""


async def test_streams_of_lines_are_open_pages_too(page_server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_PAGES", 3)
    monkeypatch.setattr(live, "PING_SECONDS", 0.05)  # by a ping it is noticed that a client has gone
    async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link()) == 200

        async def stream() -> aiohttp.ClientResponse:
            return await stack.enter_async_context(http.get(f"{page_server.url}v1/live", headers=browser.headers))

        async with browser.live():
            streams = [await stream() for _ in range(4)]
            assert [response.status for response in streams] == [200, 200, 503, 503]
            assert await streams[2].json() == {"error": "3 pages are open already"}
            with pytest.raises(aiohttp.WSServerHandshakeError):
                async with browser.live():
                    pass
        streams[0].close()

        async def is_admitted() -> bool:
            return (await stream()).status == 200

        await until_async(is_admitted, "a page is open when another was closed")


SCARCE = """
import asyncio, resource, sys
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

async def main():
    page_server = PageServer(None, PageOptions("history", "history"))
    await page_server.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    print(page_server.link(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await page_server.stop()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_page_server_without_descriptors_writes_one_line() -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCARCE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert server.stdout and server.stderr
    link = (await server.stdout.readline()).decode().strip()
    url = link.partition("#")[0]
    async with AsyncExitStack() as stack:
        first = await connect(stack, url, b"GET /ui/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await first.readuntil(b"\r\n\r\n")
        for _ in range(100):
            await connect(stack, url)
        line = await server.stderr.readline()
    async with aiohttp.ClientSession() as http:
        assert await Browser(url, http).log_in(link) == 200
    _, log = await server.communicate(b"")
    assert (line, log) == (b"no descriptors are left, new connections wait; raise `ulimit -n`\n", b"")
