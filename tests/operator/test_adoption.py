"""Jobs of the Training Operator that run when it is replaced: their children get labels, and nothing restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.samples import kubeflow_job
from tests.support.waiting import until_async
from tests.support.watched_objects import until_objects
from trainyard import core
from trainyard.client import ApiClient
from trainyard.core import Config
from trainyard.kinds import PYTORCHJOB, crd
from trainyard.objects import Json, format_time, is_condition_true, labels_of, uid_of
from trainyard.objects.labels import ATTEMPT, OWNER, PREFIX, ROLE
from trainyard.objects.resources import CRD, POD, SERVICE, SERVICE_ACCOUNT
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.workloads import ControllerManager

STARTED = 1_700_000_000.0


@asynccontextmanager
async def cluster() -> AsyncIterator[ApiClient]:
    """An API server with the controllers of Kubernetes, and no node: pods are what the test says."""
    server = Server()
    await server.start()
    async with ApiClient(server.url) as api, ApiClient(server.url) as manager_api:
        manager = ControllerManager(manager_api, time.time)
        await manager.start()
        await api.create(CRD, "", crd(PYTORCHJOB))
        await until_objects(api, SERVICE_ACCOUNT, "default", bool, "the default ServiceAccount")
        try:
            yield api
        finally:
            await manager.stop()
    await server.stop()


async def left_behind(api: ApiClient) -> Json:
    """A running PyTorchJob as the Training Operator leaves it: its status, and children without our labels."""
    manifest = kubeflow_job("PyTorchJob")
    manifest["metadata"] = {"name": "example", "namespace": "default"}
    job = await api.create(PYTORCHJOB.gvk, "default", manifest)
    for create in core.plan(PYTORCHJOB, job, core.Observed(), STARTED).creates:
        await api.create(create.gvk, "default", without_labels(core.render_object(PYTORCHJOB, job, create, Config())))
    for pod in (await api.list(POD, "default"))["items"]:
        states = [{"name": "pytorch", "state": {"running": {"startedAt": format_time(STARTED)}}, "restartCount": 0}]
        status = {"phase": "Running", "startTime": format_time(STARTED), "containerStatuses": states}
        await api.patch(POD, "default", pod["metadata"]["name"], {"status": status}, "status")
    condition = {"status": "True", "lastUpdateTime": format_time(STARTED), "lastTransitionTime": format_time(STARTED)}
    job_status: Json = {
        "conditions": [
            {**condition, "type": kind, "reason": f"PyTorchJob{kind}", "message": ""} for kind in ("Created", "Running")
        ],
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2}},
        "startTime": format_time(STARTED),
    }
    return await api.patch(PYTORCHJOB.gvk, "default", "example", {"status": job_status}, "status")


def without_labels(child: Json) -> Json:
    labels = {name: value for name, value in labels_of(child).items() if not name.startswith(PREFIX)}
    return {**child, "metadata": {**child["metadata"], "labels": labels}}


@pytest.mark.parametrize("lost", [False, True])
async def test_children_of_the_training_operator_are_adopted_and_go_on(lost: bool) -> None:
    """`lost`: a pod was deleted while no operator ran; it alone is made again."""
    async with cluster() as api:
        job = await left_behind(api)
        if lost:
            await api.delete(POD, "default", "example-worker-1", grace_period_seconds=0)
        before = await uids(api)
        operator = Operator(api, (PYTORCHJOB,), Config())
        await operator.start()
        try:
            await until_async(lambda: is_adopted(api, uid_of(job)), "the children are adopted")
            await until_async(lambda: is_running(api), "the job is seen running")
        finally:
            await operator.stop()
        after = await uids(api)
        assert len(after) == 6 and before.items() <= after.items()
        stored = await api.get(PYTORCHJOB.gvk, "default", "example")
        assert stored["status"]["startTime"] == format_time(STARTED), "the deadline counts from the real start"
        assert stored["status"]["restarts"] == 0 and stored["status"]["hasRun"] is True
        assert [item["type"] for item in stored["status"]["conditions"]] == ["Created", "Running"]
        pod = await api.get(POD, "default", "example-master-0")
        assert (labels_of(pod)[ROLE], labels_of(pod)[ATTEMPT]) == ("Master", "0")


async def uids(api: ApiClient) -> dict[tuple[str, str], str]:
    lists = await asyncio.gather(*(api.list(gvk, "default") for gvk in (POD, SERVICE)))
    return {
        (gvk.kind, item["metadata"]["name"]): uid_of(item)
        for gvk, listed in zip((POD, SERVICE), lists, strict=True)
        for item in listed["items"]
        if item["metadata"]["name"].startswith("example")
    }


async def is_running(api: ApiClient) -> bool:
    """All of its pods are counted as running: at first some of them are not adopted yet."""
    stored = await api.get(PYTORCHJOB.gvk, "default", "example")
    return is_condition_true(stored["status"]["conditions"], "Running") and "restarts" in stored["status"]


async def is_adopted(api: ApiClient, uid: str) -> bool:
    lists = await asyncio.gather(*(api.list(gvk, "default") for gvk in (POD, SERVICE)))
    labelled = [item for listed in lists for item in listed["items"] if labels_of(item).get(OWNER) == uid]
    return len(labelled) == 6
