"""The real node, a namespace for each test, our definitions, and images of the Dockerfiles; a stage for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real_node.stage import Stage, staged
from tests.support import container_images
from tests.support.container_images import OPERATOR_IMAGE
from tests.support.control_plane_fixtures import installed, namespace
from tests.support.real_node import RealNode
from tests.support.real_node_fixtures import control_plane, real_node

__all__ = ["control_plane", "installed", "namespace", "operator_image", "real_node"]


@pytest.fixture(scope="module")
def stage(
    installed: RealNode, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Of the module: its tests share a namespace and an operator, so that their jobs run at the same time."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    with staged(installed, name, tmp_path_factory.mktemp(name)) as stage:
        yield stage


@pytest.fixture(scope="session")
def operator_image(real_node: RealNode) -> None:
    """The operator's image of the Dockerfile, on the node."""
    import_image(real_node, OPERATOR_IMAGE)


def import_image(node: RealNode, name: str) -> None:
    """Build an image of a Dockerfile, and let the pods use it."""
    if text := container_images.missing():
        pytest.skip(text)
    node.import_image(container_images.built(name, print))
