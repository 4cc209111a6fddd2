"""The fixtures of pytest. In conftest.py: `pytest_plugins = ["trainyard.testing.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainyard.app.local import LocalClusterOptions
from trainyard.testing.cluster import ClusterHandle, local_cluster


@pytest.fixture
def trainyard_cluster_options() -> LocalClusterOptions | None:
    """Override it to start the cluster with other options."""
    return None


@pytest.fixture
def trainyard_cluster(trainyard_cluster_options: LocalClusterOptions | None) -> Iterator[ClusterHandle]:
    """A cluster for one test: nothing of it is left when the test ends."""
    with local_cluster(trainyard_cluster_options) as cluster:
        yield cluster
