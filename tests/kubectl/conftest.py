"""kubectl, the pinned one that is built beside the control plane, and a person at each kind of cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubectl import kubectl_clusters as kubectl_yards
from tests.kubectl.kubectl_clusters import Person, Yard
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_build import programs
from tests.support.control_plane_fixtures import control_plane, installed

__all__ = ["control_plane", "installed"]

BOTH = ("embedded", "real")


@pytest.fixture(scope="session")
def embedded() -> Iterator[Yard]:
    with kubectl_yards.embedded(kubectl()) as yard:
        yield yard


@pytest.fixture(scope="session")
def real(installed: ControlPlane) -> Iterator[Yard]:
    with kubectl_yards.real(installed) as yard:
        yield yard


@pytest.fixture(params=BOTH)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """A story that holds for both is told of both."""
    with request.getfixturevalue(request.param).person() as one:
        yield one


@pytest.fixture
def here(embedded: Yard) -> Iterator[Person]:
    """Somebody at the cluster in this process."""
    with embedded.person() as one:
        yield one


def kubectl() -> Path:
    """Found, or built once. Raises BuildError with the fix."""
    return programs(lambda text: print(f"kubectl: {text}", file=sys.stderr, flush=True))["kubectl"]
