"""TensorBoard beside a job: a stand-in for the program, that lists its log folder. The real one is in test_training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.harness import DEPLOYMENT, SERVICE, TFJOB, Harness, looked, replicas, tf_job
from trainyard.objects import Json, is_condition_true


def board(folder: Path) -> Json:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "events.out.tfevents.1").touch()
    return {
        "logDir": "/somewhere/logs",
        "volumes": [{"name": "all", "hostPath": {"path": str(folder)}}],
        "volumeMounts": [{"name": "all", "mountPath": "/somewhere"}],
    }


async def available(harness: Harness, name: str) -> Json:
    return await harness.until(
        lambda deployment: is_condition_true(deployment.get("status", {}).get("conditions"), "Available"),
        DEPLOYMENT,
        name,
    )


class TestInItsNetwork:
    @pytest.fixture
    def network(self) -> str:
        return "namespace"

    async def test_tensorboard_is_served_by_its_service_even_after_the_end_of_the_job(self, harness: Harness) -> None:
        await harness.submit(tf_job(tensorboard=board(harness.folder), cleanPodPolicy="None"))
        await harness.every_replica_runs()
        name = f"tensorboard-{(await harness.job())['spec']['RuntimeId']}"
        await available(harness, name)
        service = await harness.api.get(SERVICE, harness.namespace, name)
        assert service["spec"]["ports"][0]["port"] == 80 and service["spec"]["type"] == "ClusterIP"
        worker = await harness.controlled_pod("worker")
        for host in (service["spec"]["clusterIP"], name, f"{name}.{harness.namespace}.svc.cluster.local"):
            assert "events.out.tfevents.1" in await worker.ask(f"fetch('http://{host}/')")
        await (await harness.controlled_pod("master")).exit(0)
        await harness.condition("Succeeded")
        assert "events.out.tfevents.1" in await worker.ask(f"fetch('http://{name}/')")


async def test_tensorboard_is_deleted_on_suspend_and_created_on_resume(harness: Harness) -> None:
    await harness.submit(tf_job(replicas("MASTER"), tensorboard=board(harness.folder)))
    await harness.controlled_pod("master")
    name = f"tensorboard-{(await harness.job())['spec']['RuntimeId']}"
    await available(harness, name)
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": True}})
    await harness.gone(DEPLOYMENT, name)
    assert name in await harness.children(SERVICE)
    await harness.until_holds(lambda: not harness.running())
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"suspend": False}})
    await available(harness, name)


@pytest.mark.parametrize(("policy", "stays"), [("Running", True), ("All", False)])
async def test_tensorboard_lives_until_the_job_is_deleted_unless_clean_pod_policy_is_all(
    harness: Harness, policy: str, stays: bool
) -> None:
    await harness.submit(tf_job(replicas("MASTER"), tensorboard=board(harness.folder), cleanPodPolicy=policy))
    await harness.controlled_pod("master")
    name = f"tensorboard-{(await harness.job())['spec']['RuntimeId']}"
    await available(harness, name)
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    operator, _ = await harness.operator()
    await looked(operator)
    if not stays:
        await harness.gone(DEPLOYMENT, name)
    assert (name in await harness.children(DEPLOYMENT)) == stays
    await harness.api.delete(TFJOB, harness.namespace, "story")
    await harness.gone(DEPLOYMENT, name)
    await harness.nothing_left()
