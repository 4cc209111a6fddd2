"""TensorBoard beside a job: a stand-in for the program, that lists its log folder. The real one is in test_training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.harness import DEPLOYMENT, SERVICE, TFJOB, Stage, looked, replicas, tf_job
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


async def available(stage: Stage, name: str) -> Json:
    return await stage.until(
        lambda one: is_condition_true(one.get("status", {}).get("conditions"), "Available"), DEPLOYMENT, name
    )


class TestInItsNetwork:
    @pytest.fixture
    def network(self) -> str:
        return "namespace"

    async def test_it_answers_behind_its_service_also_after_the_end(self, stage: Stage) -> None:
        await stage.submit(tf_job(tensorboard=board(stage.folder), cleanPodPolicy="None"))
        await stage.everybody()
        name = f"tensorboard-{(await stage.job())['spec']['RuntimeId']}"
        await available(stage, name)
        service = await stage.api.get(SERVICE, stage.namespace, name)
        assert service["spec"]["ports"][0]["port"] == 80 and service["spec"]["type"] == "ClusterIP"
        worker = await stage.actor("worker")
        for host in (service["spec"]["clusterIP"], name, f"{name}.{stage.namespace}.svc.cluster.local"):
            assert "events.out.tfevents.1" in await worker.ask(f"fetch('http://{host}/')")
        await (await stage.actor("master")).exit(0)
        await stage.condition("Succeeded")
        assert "events.out.tfevents.1" in await worker.ask(f"fetch('http://{name}/')")


async def test_it_goes_while_the_job_is_suspended_and_comes_back(stage: Stage) -> None:
    await stage.submit(tf_job(replicas("MASTER"), tensorboard=board(stage.folder)))
    await stage.actor("master")
    name = f"tensorboard-{(await stage.job())['spec']['RuntimeId']}"
    await available(stage, name)
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": True}})
    await stage.gone(DEPLOYMENT, name)
    assert name in await stage.children(SERVICE)
    await stage.happens(lambda: not stage.running())
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"suspend": False}})
    await available(stage, name)


@pytest.mark.parametrize(("policy", "stays"), [("Running", True), ("All", False)])
async def test_it_lives_until_the_job_is_deleted_unless_all_is_cleaned(stage: Stage, policy: str, stays: bool) -> None:
    await stage.submit(tf_job(replicas("MASTER"), tensorboard=board(stage.folder), cleanPodPolicy=policy))
    await stage.actor("master")
    name = f"tensorboard-{(await stage.job())['spec']['RuntimeId']}"
    await available(stage, name)
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    operator, _ = await stage.operator()
    await looked(operator)
    if not stays:
        await stage.gone(DEPLOYMENT, name)
    assert (name in await stage.children(DEPLOYMENT)) == stays
    await stage.api.delete(TFJOB, stage.namespace, "story")
    await stage.gone(DEPLOYMENT, name)
    await stage.nothing_left()
