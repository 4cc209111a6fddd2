"""check_server on a real control plane."""

from __future__ import annotations

import pytest

from trainyard.testing.check_server import CHECKS, Check, real
from trainyard.testing.check_server.runner import run
from trainyard.testing.control_plane import ControlPlane

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_real_server_passes(check: Check, control_plane: ControlPlane) -> None:
    async with real(control_plane) as cluster:
        await run(check, cluster)
