"""A fresh cluster to ask, and a running server with a client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.server.server_clients import Client, Cluster
from trainyard.server import Server


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, server.url)
