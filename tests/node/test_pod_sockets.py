"""Sockets that lead to a port of a pod: private, made once, gone with the pod."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainyard.node.kubelet.api.pod_sockets import MAX_SOCKET_PATH, PodSockets
from trainyard.node.network.proxy import Streams


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="inlets-"))
    yield folder
    shutil.rmtree(folder)


async def refusing() -> Streams:
    raise ConnectionRefusedError


async def test_a_socket_forwards_to_the_port_and_is_removed_with_its_pod(place: Path) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    inlets = PodSockets(place / "inlets")
    path = await inlets.open("uid", 80, lambda: asyncio.open_connection("127.0.0.1", port))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert await inlets.open("uid", 80, refusing) == path
    other = await inlets.open("other", 80, refusing)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    inlets.close("uid")
    assert not path.exists() and other.exists()
    inlets.close()
    assert not other.exists()
    server.close()


async def test_a_port_without_listener_resets_the_connection(place: Path) -> None:
    inlets = PodSockets(place)
    reader, writer = await asyncio.open_unix_connection(await inlets.open("uid", 80, refusing))
    async with asyncio.timeout(10):
        (end,) = await asyncio.gather(reader.read(), return_exceptions=True)
        assert end == b"" or isinstance(end, ConnectionError)
    writer.close()
    inlets.close()


async def test_a_path_that_is_too_long_is_an_error_with_the_fix(place: Path) -> None:
    with pytest.raises(OSError, match="state folder"):
        await PodSockets(place / ("x" * MAX_SOCKET_PATH)).open("uid", 80, refusing)
