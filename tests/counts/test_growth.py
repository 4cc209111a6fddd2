"""One job of 10,000 replicas and 10,000 jobs of one pod: requests and plans grow as the jobs do."""

from __future__ import annotations

import pytest

from tests.counts.counted_operator import CountedOperator, counted_operator, live

pytestmark = pytest.mark.slow

BURST = 1000
RUN_WRITES = 5  # see test_counts.py


async def count_life(monkeypatch: pytest.MonkeyPatch, jobs: int, pods: int) -> CountedOperator:
    with monkeypatch.context() as patches:
        async with counted_operator(patches) as counted:
            await live(counted, jobs, pods, BURST)
            return counted


async def test_requests_of_a_job_grow_with_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    for pods in (1000, 10_000):
        counted = await count_life(monkeypatch, 1, pods)
        assert counted.creates == 2 * pods
        bursts = 2 * pods // BURST  # of counts that change: the status is written again
        assert counted.writes <= counted.creates + RUN_WRITES + bursts
        assert counted.plans <= 6 + 3 * bursts
        assert counted.lists("pods") == counted.lists("services") == 1


async def test_requests_and_plans_grow_with_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    for jobs in (500, 10_000):
        counted = await count_life(monkeypatch, jobs, 1)
        assert counted.creates == 2 * jobs
        assert counted.writes <= counted.creates + RUN_WRITES * jobs
        assert counted.plans <= 7 * jobs
        assert counted.lists("pods") == counted.lists("pytorchjobs") == 1
