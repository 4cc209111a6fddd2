"""check_server on a real control plane."""

from __future__ import annotations

import pytest

from tests.conformance import CHECKS, Check, real
from tests.conformance.runner import run
from tests.support.control_plane import ControlPlane

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_real_server_passes(check: Check, control_plane: ControlPlane) -> None:
    async with real(control_plane) as cluster:
        await run(check, cluster)
