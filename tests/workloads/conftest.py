from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.workloads.workload_world import Clock, World, running
from trainyard.client import ApiClient
from trainyard.server import Server


@pytest.fixture
async def world() -> AsyncIterator[World]:
    server = Server()
    await server.start()
    async with ApiClient(server.url) as api:
        clock = Clock()
        async with running(api, clock):
            yield World(api, clock, server)
    await server.stop()
