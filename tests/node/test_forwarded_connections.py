"""Connections to Services have a limit, so that who opens them uses up no descriptors of the API."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.support.waiting import until_async
from trainyard.node.network import proxy
from trainyard.node.network.proxy import Streams


async def test_connections_over_the_limit_are_refused_until_others_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy, "forwarded_limit", lambda: 2)
    monkeypatch.setattr(proxy, "_forwarded", proxy._Forwarded())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.forward(reader, writer, lambda: asyncio.open_connection(*pod.sockets[0].getsockname()))

    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as pod,
        await asyncio.start_server(serve, "127.0.0.1", 0) as service,
        AsyncExitStack() as stack,
    ):

        async def connect() -> tuple[Streams, bytes]:
            reader, writer = await asyncio.open_connection(*service.sockets[0].getsockname())
            stack.callback(writer.close)
            writer.write(b"hello\n")
            try:
                return (reader, writer), await reader.readline()
            except ConnectionError:
                return (reader, writer), b""

        held = [await connect() for _ in range(4)]
        assert [answer for _, answer in held] == [b"hello\n", b"hello\n", b"", b""]
        assert [record.getMessage() for record in caplog.records] == [
            "2 connections to Services are open, more are refused; raise `ulimit -n`"
        ]
        held[0][0][1].close()

        async def is_served() -> bool:
            return (await connect())[1] == b"hello\n"

        await until_async(is_served, "there is room again")


def test_what_is_forwarded_leaves_most_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (1024, 1024))
    assert proxy.forwarded_limit() == 128
