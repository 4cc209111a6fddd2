"""A harness for each story, on each back end. Its folder has a short path: a socket takes no long one.

A test that asks for a harness is made twice: `embedded`, and `real` with the marker `cluster`, unless the table in
embedded_only.py has it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.stories import embedded_only
from tests.stories.back_ends import BOTH, Cluster, Embedded
from tests.stories.harness import Clock, Harness
from tests.stories.real_cluster import Nodes, RealCluster
from tests.stories.users import RealUserCluster, UserCluster
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import control_plane, installed
from trainyard.app.local import LocalClusterOptions
from trainyard.server import Server

__all__ = ["control_plane", "installed"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = any(mark.args[0] == "back_end" for mark in metafunc.definition.iter_markers("parametrize"))
    if "back_end" in metafunc.fixturenames and not own:
        metafunc.parametrize("back_end", BOTH)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the stories of the table in embedded_only.py on the real control plane."""
    gone = [item for item in items if _back_end(item) == "real" and embedded_only.reason(item.nodeid)]
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=gone)


def _back_end(item: pytest.Item) -> str:
    return (
        str(item.callspec.params.get("back_end", ""))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ""
    )


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="harness-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def network() -> str:
    """Stories run in the network that starts fastest, unless they are about a network."""
    return "shared"


@pytest.fixture
def checks() -> object:
    """The rules across fields that the server checks; None for ours."""
    return None


@pytest.fixture
def options(place: Path, network: str) -> LocalClusterOptions:
    """Images are stand-ins, and no environment is ever built."""
    images = (Path(__file__).with_name("stand_ins") / "images.yaml",)
    say, python = list[str]().append, sys.executable
    return LocalClusterOptions(
        network=network, images=images, cache=place / "cache", python=python, say=say, parent=place
    )


@pytest.fixture(scope="session")
def nodes(installed: ControlPlane) -> Iterator[Nodes]:
    """The nodes that have joined this process's control plane."""
    with Nodes(installed, Clock()) as node_pool:
        yield node_pool


@pytest.fixture
def joined(back_end: str, request: pytest.FixtureRequest) -> Nodes | None:
    """The control plane is started only if a test uses it."""
    return request.getfixturevalue("nodes") if back_end == "real" else None


Told = AsyncIterator[tuple[Cluster, Clock]]


@asynccontextmanager
async def embedded(options: LocalClusterOptions, checks: dict[tuple[str, str], object] | None) -> Told:
    clock = Clock()
    cluster = Embedded(options, clock)
    if checks is not None:
        cluster.server = Server({}, cluster.token, clock)
    async with cluster:
        yield cluster, clock
        await cluster.stop(kill=True)


@asynccontextmanager
async def real(options: LocalClusterOptions, nodes: Nodes) -> Told:
    cluster = RealCluster(nodes, options)
    try:
        await cluster.start()
        yield cluster, nodes.clock
    finally:
        await cluster.stop()


@pytest.fixture
async def harness(
    place: Path, options: LocalClusterOptions, checks: dict[tuple[str, str], object] | None, joined: Nodes | None
) -> AsyncIterator[Harness]:
    story_harness: Harness | None = None
    try:
        async with real(options, joined) if joined else embedded(options, checks) as (cluster, clock):
            story_harness = Harness(cluster, clock, place)
            await story_harness.open()
            yield story_harness
    finally:
        if story_harness is not None:
            await story_harness.close()


@pytest.fixture
def user_cluster(back_end: str, request: pytest.FixtureRequest) -> Iterator[UserCluster]:
    """A cluster that a person works with."""
    home = Path(tempfile.mkdtemp(prefix="user_cluster-"))
    user_cluster = (
        RealUserCluster(home, request.getfixturevalue("installed")) if back_end == "real" else UserCluster(home)
    )
    try:
        yield user_cluster
    finally:
        user_cluster.down()
        shutil.rmtree(home, ignore_errors=True)
