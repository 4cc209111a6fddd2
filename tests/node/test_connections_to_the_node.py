"""Connections to the node's port by those who have no token: any local user may open them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from tests.support.waiting import until_async
from trainyard.node.kubelet.api.authentication import TokenAuthenticator
from trainyard.node.kubelet.api.handlers import RequestError
from trainyard.node.kubelet.api.routes import MAX_CONNECTIONS, KubeletHttp


class Handlers:
    """A node without pods, whose answer about a log lasts until `go_on` is set."""

    def __init__(self) -> None:
        self.request_arrived, self.go_on = asyncio.Event(), asyncio.Event()

    def find_log(self, *names: object) -> None:
        raise RequestError(404, "no such pod")

    async def open_socket(self, *names: object) -> str:
        self.request_arrived.set()
        await self.go_on.wait()
        return "/socket"


async def test_connections_without_a_token_are_limited_and_keep_no_client_out() -> None:
    handlers: Any = Handlers()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    url, headers = f"http://127.0.0.1:{listener.getsockname()[1]}", {"Authorization": "Bearer token"}
    node = await KubeletHttp(handlers, TokenAuthenticator("token")).serve(listener)
    readers: list[asyncio.StreamReader] = []

    async def hold(count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            stack.callback(writer.close)
            writer.write(b"GET /exec HTTP/1.1\r\nHost: x\r\n\r\n"[: len(readers) % 30])
            readers.append(reader)

    async with AsyncExitStack() as stack, aiohttp.ClientSession(headers=headers) as client:
        await hold(2 * MAX_CONNECTIONS)
        request = asyncio.ensure_future(client.get(f"{url}/sockets/default/pod/80"))
        await handlers.request_arrived.wait()
        await hold(2 * MAX_CONNECTIONS)
        await until_async(
            lambda: sum(not (reader.at_eof() or reader.exception()) for reader in readers) < MAX_CONNECTIONS,
            "the others are closed",
        )
        async with client.get(f"{url}/containerLogs/default/pod/main") as answer:
            assert (answer.status, await answer.text()) == (404, "no such pod\n")
        handlers.go_on.set()
        async with await request as answer:
            assert (answer.status, await answer.text()) == (200, "/socket")
    await node.stop()


@pytest.mark.parametrize(
    "request_text",
    [
        b"secret \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: secret\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"secret" * 10_000 + b"\r\n\r\n",
    ],
    ids=["no HTTP", "two hosts", "no chunk", "a long header"],
)
async def test_what_is_no_request_is_refused_and_neither_logged_nor_returned(
    caplog: pytest.LogCaptureFixture, request_text: bytes
) -> None:
    """Any local user may send it, as often as he likes; it may have part of a token."""
    handlers: Any = Handlers()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    node = await KubeletHttp(handlers, TokenAuthenticator("token")).serve(listener)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
    writer.write(request_text)
    answer = await reader.read()
    assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400", b"HTTP/1.1 401")) and b"secret" not in answer
    assert not caplog.records
    writer.close()
    await node.stop()
