"""A real server and a real node for each test, in each network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.server import Server


@pytest.fixture
def state() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["namespace", "shared"])
async def cluster(request: pytest.FixtureRequest, state: Path) -> AsyncIterator[NodeCluster]:
    lines: list[str] = []
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        node = Node(
            api, state, CurrentInterpreter(state), network=request.param, token=TOKEN, print_message=lines.append
        )
        await node.start()
        yield NodeCluster(api, node, lines)
        await node.stop(kill=True)
    await server.stop()
