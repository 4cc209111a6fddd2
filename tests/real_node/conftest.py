"""The real node, a namespace for each test, and our definitions."""

from __future__ import annotations

from tests.support.control_plane_fixtures import installed, namespace
from tests.support.real_node_fixtures import control_plane, real_node

__all__ = ["control_plane", "installed", "namespace", "real_node"]
