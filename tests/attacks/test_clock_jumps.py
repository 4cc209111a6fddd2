"""A wall clock that jumps back and forth by an hour, for all components of a local cluster: server, node, operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks.soak import AT_ONCE, grown, run_jobs, until_given_back
from tests.faults.operators import jumping
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.objects import is_condition_true
from trainyard.objects.resources import NODE

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("network", ["namespace", "shared"])
async def test_jobs_run_to_their_end_while_the_clock_of_their_cluster_jumps(network: str, tmp_path: Path) -> None:
    words: Any = {"network": network, "cache": tmp_path / "cache", "parent": tmp_path, "say": lambda text: None}
    async with LocalCluster(LocalClusterOptions(**words), now=jumping(3600.0)) as cluster:
        await run_jobs(cluster, [f"warm-{number}" for number in range(AT_ONCE)])
        before = await until_given_back(cluster)
        await run_jobs(cluster, [f"job-{number}" for number in range(2 * AT_ONCE)])
        assert grown(before, await until_given_back(cluster, before)) == {}
        for supervisor in cluster.task_supervisors.values():
            assert not supervisor.unhealthy and not supervisor.failing
        (node,) = (await cluster.api.list(NODE, ""))["items"]
        assert is_condition_true(node["status"]["conditions"], "Ready")
