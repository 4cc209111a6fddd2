"""The real control plane, and the tables of good and bad input that tests/kinds has."""

from __future__ import annotations

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import control_plane, installed, namespace

__all__ = ["control_plane", "installed", "namespace", "peopled"]


@pytest.fixture
def peopled(installed: ControlPlane) -> ControlPlane:
    """The same with a node that KWOK plays. Not for threads: a program ends with the thread that has started it."""
    installed.add_node("node-1")
    return installed
