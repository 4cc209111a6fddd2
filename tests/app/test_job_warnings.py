"""What `get` and `status` say below their table, from the jobs and their PodMetrics."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.views.why_values import RUNNING, template, tfjob
from trainyard.app.evidence.pod_metrics import progress_warnings
from trainyard.client import ApiClient
from trainyard.objects import Json


class NoMetrics:
    """A cluster where nobody measures."""

    async def list(self, *arguments: Any) -> Json:
        return {"items": []}


@pytest.mark.parametrize(("count", "warnings"), [(0, ["tfjob/mnist: it has no replicas; scale it"]), (1, [])])
async def test_a_job_without_replicas(count: int, warnings: list[str]) -> None:
    job = tfjob(
        RUNNING, replicaSpecs=[{"tfReplicaType": "WORKER", "replicas": count, "template": template("tensorflow")}]
    )
    assert await progress_warnings(cast(ApiClient, NoMetrics()), "default", [job], []) == warnings
