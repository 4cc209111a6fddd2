"""The restart of a small gang is measured on a real control plane, ours and by hand."""

from __future__ import annotations

import pytest

from bench.peers import OURS
from bench.restart import contenders, measure, table
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster]


async def test_a_restart_of_ours_is_measured_beside_its_floor() -> None:
    with ControlPlane() as plane:
        samples = await measure(plane, contenders()[OURS], [9])
    assert 0 < samples["9.gone"][0] <= samples["9.seconds"][0]
    assert 0 < samples["9.floor.gone"][0] <= samples["9.floor.seconds"][0]
    assert samples["9.requests"][0] >= 2 * 9 + 1
    assert all(row.ours for row in table({OURS: samples}, [9]))
