"""A stage for each story: a whole cluster in this process. Its folder has a short path: a socket takes no long one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from stage import Clock, Stage

from trainyard.app.local import LocalCluster, Options
from trainyard.server import Server


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="stage-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def network() -> str:
    """Stories are told in the network that starts fastest; one that is about the network says which."""
    return "shared"


@pytest.fixture
def checks() -> object:
    """The rules across fields that the server checks; None for ours."""
    return None


@pytest.fixture
def options(place: Path, network: str) -> Options:
    """Images have stand-ins, and no environment is ever built."""
    images = (Path(__file__).with_name("stand_ins") / "images.yaml",)
    return Options(network=network, images=images, cache=place / "cache", say=list[str]().append, state=place)


@pytest.fixture
async def stage(place: Path, options: Options, checks: dict[tuple[str, str], object] | None) -> AsyncIterator[Stage]:
    clock = Clock()
    cluster = LocalCluster(options, clock)
    if checks is not None:
        cluster.server = Server({}, cluster.token, clock)
    async with cluster:
        made = Stage(cluster, clock, place)
        await made.open()
        yield made
        await cluster.stop(kill=True)
        await made.close()
