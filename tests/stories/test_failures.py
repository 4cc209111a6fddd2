"""Somebody dies. Who is counted, who comes back, and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stories.controlled_pods import actor
from tests.stories.harness import JOB, POD, Stage, attempt_of, failures, looked, replicas, restarts, tf_job
from trainyard.objects import Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("role", ["worker", "ps"])
async def test_a_killed_replica_comes_back_in_its_place_and_is_counted(stage: Stage, role: str) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    pod = await stage.pod(role)
    await (await stage.actor(role)).kill()
    back = await stage.actor(role)
    job = await stage.until(lambda job: restarts(job) == 1)
    assert job["status"]["state"] == "Running"
    assert uid_of(await stage.pod(role)) == uid_of(pod)
    assert back.config["task"] == {"type": role, "index": 0}
    assert {name: len(stage.entrances(name)) for name in ("master", "worker", "ps")} == {
        "master": 1, "worker": 1, "ps": 1, role: 2,
    }  # fmt: skip
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


async def test_a_killed_master_is_counted_once_and_made_again_after_its_back_off(stage: Stage) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    await stage.everybody_is_said()
    first = await _master(stage)
    await (await stage.actor("master")).kill()
    said = await stage.condition("Restarting")
    assert "exited with code 137" in said["message"] and "retryable" in said["message"]
    operator, api = await stage.operator()  # whoever looks at it now must not count it again, nor make it early
    await looked(operator)
    assert api.writes == []
    job = await stage.job()
    assert (failures(job), restarts(job)) == (1, 0) and uid_of(await _master(stage)) == uid_of(first)
    stage.later(10)
    await stage.everybody()
    second = await _master(stage)
    assert name_of(second) == name_of(first) and (attempt_of(first), attempt_of(second)) == ("0", "1")
    job = await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    assert restarts(job) == 1 and job["status"]["roles"]["MASTER"]["failures"] == 1
    assert len(stage.entrances("worker")) == len(stage.entrances("ps")) == 1
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    assert restarts(await stage.job()) == 1


async def _master(stage: Stage) -> Json:
    (found,) = [one for name, one in (await stage.children(JOB)).items() if name.startswith("master-")]
    return found


async def test_the_back_off_doubles(stage: Stage) -> None:
    await stage.submit(tf_job(replicas("MASTER")))
    for attempt, pause in enumerate((10, 20, 40)):
        await (await stage.actor("master")).exit(255)
        await stage.until(lambda job, count=attempt + 1: failures(job) == count)
        stage.later(pause - 5)
        operator, api = await stage.operator()
        await looked(operator)
        assert api.writes == [] and stage.running().total() == 0
        stage.later(5)
    await stage.actor("master")
    assert attempt_of(await _master(stage)) == "3"


async def test_a_master_that_exits_1_fails_the_job_at_once_and_everything_can_be_looked_at(stage: Stage) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    master = await stage.actor("master")
    await master.ask("print('division by zero', flush=True)")
    pod = await stage.pod("master")
    await master.exit(1)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert "MASTER 0: container tensorflow exited with code 1" in failed["message"]
    job = await stage.job()
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Failed")
    assert job["status"]["reason"] == failed["message"] and "completionTime" in job["status"]
    operator, api = await stage.operator()
    stage.later(3600)
    await looked(operator)
    assert api.writes == []
    assert stage.running() == {"worker": 2, "ps": 1}
    assert uid_of(await stage.pod("master")) == uid_of(pod)
    assert await stage.logs(name_of(pod)) == "division by zero\n"


@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_a_master_past_its_memory_limit_fails_the_job_at_once_with_the_reason(stage: Stage, network: str) -> None:
    limited = actor(resources={"limits": {"memory": "256Mi"}})
    await stage.submit(tf_job(replicas("MASTER", container=limited)))
    (await stage.actor("master")).tell("globals().__setitem__('data', b'x' * (1 << 30))")
    failed = await stage.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert "container tensorflow exited with code 137 (OOMKilled)" in failed["message"]
    assert failures(await stage.job()) == 1


@pytest.mark.parametrize("code", [2, 127, 128, 255])
async def test_1_to_127_are_permanent_and_128_to_255_are_tried_again(stage: Stage, code: int) -> None:
    await stage.submit(tf_job(replicas("MASTER")))
    await (await stage.actor("master")).exit(code)
    await stage.condition("Failed" if code < 128 else "Restarting")
    job = await stage.job()
    assert (failures(job), restarts(job)) == (1, 0)
    assert is_condition_true(job["status"]["conditions"], "Failed") == (code < 128)


class Scripted:
    """A master on a node that nobody is: what its pod does is what the story writes into the status."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def begin(self) -> None:
        await self.stage.submit(tf_job(replicas("MASTER", nodeName="of-the-story"), replicas("WORKER")))
        await self.says("Running", {"running": {}})
        await self.stage.until(lambda job: job.get("status", {}).get("state") == "Running")

    async def says(self, phase: str, state: Json, **more: Any) -> Json:
        pod = await self.stage.pod("master")
        containers = [{"name": "tensorflow", "restartCount": 0, "state": state}]
        status = {"phase": phase, "containerStatuses": containers, **more}
        return await self.stage.api.patch(POD, self.stage.namespace, name_of(pod), {"status": status}, "status")


async def test_out_of_memory_is_permanent_though_its_code_is_137(stage: Stage) -> None:
    scripted = Scripted(stage)
    await scripted.begin()
    await scripted.says("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    failed = await stage.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert "137 (OOMKilled)" in failed["message"] and "memory limit" in failed["message"]


@pytest.mark.parametrize(
    "more",
    [
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]},
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"reason": "NodeLost"},
    ],
    ids=["DisruptionTarget", "Evicted", "NodeLost"],
)
async def test_a_disrupted_master_is_replaced_at_once_and_not_counted(stage: Stage, more: Json) -> None:
    scripted = Scripted(stage)
    await scripted.begin()
    first = await stage.pod("master")
    await scripted.says("Failed", {"terminated": {"exitCode": 1, "reason": "Error"}}, **more)
    job = await stage.until(lambda job: job["status"]["roles"]["MASTER"]["attempt"] == 1)
    await stage.gone(POD, name_of(first))
    second = await stage.pod("master")
    assert attempt_of(second) == "1" and uid_of(second) != uid_of(first)
    job = await stage.job()
    assert restarts(job) == 0 and "Failed" not in [one["type"] for one in job["status"]["conditions"]]


@pytest.mark.parametrize("role", ["master", "worker"])
async def test_a_pod_that_somebody_deletes_is_replaced_and_not_counted(stage: Stage, role: str) -> None:
    await stage.submit(tf_job(backoffLimit=0))
    await stage.everybody()
    pod = await stage.pod(role)
    before = await stage.actor(role)
    await stage.api.delete(POD, stage.namespace, name_of(pod))
    await stage.happens(before.gone.is_set)
    await stage.gone(POD, name_of(pod))
    stage.later(0 if role == "master" else 10)
    await stage.everybody()
    assert uid_of(await stage.pod(role)) != uid_of(pod)
    assert restarts(await stage.job()) == 0
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


async def test_restarts_in_place_count_against_the_limit_and_everything_is_stopped(stage: Stage) -> None:
    await stage.submit(tf_job(backoffLimit=0))
    await stage.everybody()
    await (await stage.actor("worker", 1)).exit(1)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "1 failed attempts, backoffLimit is 0" in failed["message"]
    await stage.happens(lambda: not stage.running())


async def test_a_master_may_fail_six_times_unless_the_job_says_otherwise(stage: Stage) -> None:
    await stage.submit(tf_job(replicas("MASTER"), replicas("WORKER")))
    for attempt in range(7):
        await (await stage.actor("master")).exit(130)
        await stage.until(lambda job, count=attempt + 1: failures(job) == count)
        stage.later(400)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "backoffLimit is 6 by default" in failed["message"]
    assert len(stage.entrances("master")) == 7
    await stage.happens(lambda: not stage.running())


async def test_a_worker_that_has_given_up_is_said_and_the_job_goes_on(stage: Stage) -> None:
    """A user's restartPolicy Never: each attempt is a new pod, after the Job's own back-off."""
    await stage.submit(tf_job(replicas("MASTER"), replicas("WORKER", restartPolicy="Never")))
    await (await stage.actor("worker")).exit(3)
    await stage.until(lambda job: failures(job) == 1)
    stage.later(10)
    await stage.actor("worker")
    assert len(stage.entrances("worker")) == 2
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    assert restarts(await stage.job()) == 1
