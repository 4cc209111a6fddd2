"""A TrainJob on a cluster of one machine: served, admitted and run, with the runtimes that Trainer ships."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.samples import trainjob
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiError
from trainyard.kinds import TRAINJOB
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainyard.kinds.trainjob.pod_sets import ANCESTOR, NODE, TRAINER
from trainyard.kinds.trainjob.shipped_runtimes import NAMESPACE, PUBLIC, shipped_runtimes
from trainyard.objects import Json, name_of
from trainyard.objects.resources import CONFIG_MAP, POD


def runtime(command: str) -> Json:
    """A TrainingRuntime of pods without an image that has to be known."""
    container = {"name": NODE, "image": "example.invalid/x", "command": [sys.executable, "-c", command]}
    job = {"metadata": {"labels": {ANCESTOR: TRAINER}}, "spec": {"template": {"spec": {"containers": [container]}}}}
    spec = {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [{"name": NODE, "template": job}]}}}
    return {
        "apiVersion": TRAINING_RUNTIME.api_version,
        "kind": TRAINING_RUNTIME.kind,
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": spec,
    }


def job(reference: Json) -> Json:
    wire = trainjob("tj", runtimeRef=reference)
    del wire["metadata"]["uid"], wire["metadata"]["resourceVersion"]
    return wire


async def test_a_job_of_a_users_own_runtime_runs_to_its_end(tmp_path: Path) -> None:
    options = LocalClusterOptions(network="shared", cache=tmp_path / "cache", say=lambda text: None, parent=tmp_path)
    async with LocalCluster(options) as cluster:
        api = cluster.api
        shipped = await api.list(CLUSTER_TRAINING_RUNTIME)
        assert [name_of(item) for item in shipped["items"]] == sorted(map(name_of, shipped_runtimes()))
        assert (await api.get(CONFIG_MAP, NAMESPACE, PUBLIC))["data"]
        with pytest.raises(ApiError, match='"mine" not found') as refused:
            await api.create(TRAINJOB.gvk, "default", job({"kind": "TrainingRuntime", "name": "mine"}))
        assert refused.value.code == 403
        await api.create(
            TRAINING_RUNTIME,
            "default",
            runtime("import os; print('nodes', os.environ['PET_NNODES'], 'step 3/4 loss 0.5')"),
        )
        await api.create(TRAINJOB.gvk, "default", job({"kind": "TrainingRuntime", "name": "mine"}))
        status: Json = {}
        async with asyncio.timeout(60):
            async for _ in api.watch(TRAINJOB.gvk, "default"):
                status = (await api.get(TRAINJOB.gvk, "default", "tj")).get("status") or {}
                if status.get("conditions"):
                    break
        pods = (await api.list(POD, "default"))["items"]
    assert [(item["type"], item["reason"]) for item in status["conditions"]] == [("Complete", "AllJobsCompleted")]
    assert status["jobsStatus"] == [
        {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    ]
    progress = status["trainerStatus"]
    assert progress["progressPercentage"] == 100 and progress["lastUpdatedTime"]
    assert progress["metrics"] == [{"name": "step", "value": "3"}, {"name": "loss", "value": "0.5"}]
    assert [pod["spec"]["hostname"] for pod in pods] == ["tj-node-0-0", "tj-node-0-1"]
