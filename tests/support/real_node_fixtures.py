"""For pytest: a real node for the whole run. On a machine that cannot run one its tests are skipped, with the reason.

Import `control_plane` with `installed` and `namespace` of control_plane_fixtures.py into a conftest.py: these are then
of the node's API server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.real_node import RealNode
from tests.support.real_node_build import missing


@pytest.fixture(scope="session")
def real_node() -> Iterator[RealNode]:
    """A node that is ready, with the images of this project's tests."""
    if text := missing():
        pytest.skip(text)
    with RealNode() as node:
        yield node


@pytest.fixture(scope="session")
def control_plane(real_node: RealNode) -> RealNode:
    """The node is its own control plane."""
    return real_node
