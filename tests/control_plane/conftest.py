"""The real control plane, and the tables of good and bad input that tests/kinds has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import Story, story
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import control_plane, installed, namespace

__all__ = ["control_plane", "installed", "namespace", "peopled"]


@pytest.fixture
def peopled(installed: ControlPlane) -> ControlPlane:
    """The same with a node that KWOK plays. Not for threads: a program ends with the thread that has started it."""
    installed.add_node("node-1")
    return installed


@pytest.fixture
async def scenario(installed: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Story]:
    """A namespace with an operator's account and a scripted kubelet, for the stories of faults."""
    async with story(installed, namespace, tmp_path) as scenario:
        yield scenario
