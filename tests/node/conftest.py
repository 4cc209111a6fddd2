"""A real server and a real node for each test, in each network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.node.node_cluster import NodeCluster, running_node


@pytest.fixture
def state() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    folder.chmod(0o755)  # other users' programs are in it
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["namespace", "shared"])
async def cluster(request: pytest.FixtureRequest, state: Path) -> AsyncIterator[NodeCluster]:
    async with running_node(state, request.param) as cluster:
        yield cluster
