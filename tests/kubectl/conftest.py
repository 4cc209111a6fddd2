"""kubectl, the pinned one that is built beside the control plane, and a person at each kind of cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubectl import kubectl_clusters as kubectl_yards
from tests.kubectl.kubectl_clusters import KubectlCluster, Person
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_build import programs
from tests.support.control_plane_fixtures import control_plane, installed

__all__ = ["control_plane", "installed"]

BOTH = ("embedded", "real")


@pytest.fixture(scope="session")
def embedded() -> Iterator[KubectlCluster]:
    with kubectl_yards.embedded(kubectl()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real(installed: ControlPlane) -> Iterator[KubectlCluster]:
    with kubectl_yards.real(installed) as cluster:
        yield cluster


@pytest.fixture(params=BOTH)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """A user of either cluster: a test with this fixture runs on both."""
    with request.getfixturevalue(request.param).person() as person:
        yield person


@pytest.fixture
def here(embedded: KubectlCluster) -> Iterator[Person]:
    """A user of the cluster in this process."""
    with embedded.person() as person:
        yield person


def kubectl() -> Path:
    """Found, or built once. Raises BuildError with the fix."""
    return programs(lambda text: print(f"kubectl: {text}", file=sys.stderr, flush=True))["kubectl"]
