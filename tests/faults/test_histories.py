"""A hundred histories under faults, with the operator as real processes. `make prove` runs a thousand."""

from __future__ import annotations

import pytest

from tests.faults.histories import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", [0, 50])
async def test_under_faults_no_write_is_lost_repeated_or_sent_by_an_old_leader(first: int) -> None:
    results = await run(range(first, first + 50))
    if violations := {result.seed: result.violations for result in results if result.violations}:
        pytest.fail("\n".join(f"seed {seed}: {text}" for seed, texts in violations.items() for text in texts))
    assert sum(result.faults.total() for result in results) > 50 and sum(result.takeovers for result in results) > 50


async def test_wall_clock_jumps_of_an_hour_change_nothing() -> None:
    """Those of the API server, of the kubelet and of both operators, back and forth and not in step."""
    results = await run(range(1000, 1008), shift=3600.0)
    assert [violation for result in results for violation in result.violations] == []
