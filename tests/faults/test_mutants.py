"""The power of the harness: each planted fault of the operator is caught within a bounded number of histories."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.histories import Cluster, cluster
from tests.faults.mutants import MUTANTS

HISTORIES = 72  # for each mutant, at most: the rarest is caught by one in eight
RENEWALS = 12  # of the lease without another write, until a job is stuck: no pod fails in these histories

pytestmark = pytest.mark.slow


async def histories_until_caught(shared: Cluster, name: str) -> int:
    """How many histories it took; 0 when none of them caught it."""
    mutant = MUTANTS[name]
    for seed in range(HISTORIES):
        result = await shared.history(seed, name, "ElasticJob", RENEWALS, failing=False)
        if any(violation.startswith(mutant.caught_by) for violation in result.violations):
            return seed + 1
    return 0


async def test_every_mutant_is_caught() -> None:
    gate = asyncio.Semaphore(10)
    async with cluster() as shared:

        async def bounded(name: str) -> int:
            async with gate:
                return await histories_until_caught(shared, name)

        needed = dict(zip(MUTANTS, await asyncio.gather(*map(bounded, MUTANTS)), strict=True))
    missed = [name for name, count in needed.items() if not count]
    assert len(needed) >= 12 and not missed, needed
