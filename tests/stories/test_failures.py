"""Replicas that fail: which failures are counted, which replicas restart, and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stories.controlled_pods import controlled_container
from tests.stories.harness import JOB, POD, Harness, attempt_of, failures, looked, replicas, restarts, tf_job
from trainyard.objects import Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("network", ["shared", "namespace"])
@pytest.mark.parametrize("role", ["worker", "ps"])
async def test_a_killed_replica_restarts_in_its_slot_and_is_counted(harness: Harness, role: str) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    pod = await harness.pod(role)
    await (await harness.controlled_pod(role)).kill()
    back = await harness.controlled_pod(role)
    job = await harness.until(lambda job: restarts(job) == 1)
    assert job["status"]["state"] == "Running"
    assert uid_of(await harness.pod(role)) == uid_of(pod)
    assert back.config["task"] == {"type": role, "index": 0}
    assert {name: len(harness.entrances(name)) for name in ("master", "worker", "ps")} == {
        "master": 1, "worker": 1, "ps": 1, role: 2,
    }  # fmt: skip
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


async def test_a_killed_master_is_counted_once_and_retried_after_its_back_off(harness: Harness) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    await harness.status_counts_every_replica()
    await harness.had_failed()
    first = await _master(harness)
    await (await harness.controlled_pod("master")).kill()
    condition = await harness.condition("Restarting")
    assert "exited with code 137" in condition["message"] and "retryable" in condition["message"]
    operator, api = await harness.operator()  # whoever looks at it now must not count it again, nor make it early
    await looked(operator)
    assert api.writes == []
    job = await harness.job()
    assert (failures(job), restarts(job)) == (1, 0) and uid_of(await _master(harness)) == uid_of(first)
    harness.later(360)
    await harness.every_replica_runs()
    second = await _master(harness)
    assert name_of(second) == name_of(first) and (attempt_of(first), attempt_of(second)) == ("0", "1")
    job = await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    assert restarts(job) == 1 and job["status"]["roles"]["MASTER"]["failures"] == 1
    assert len(harness.entrances("worker")) == len(harness.entrances("ps")) == 1
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    assert restarts(await harness.job()) == 1


async def _master(harness: Harness) -> Json:
    (batch_job,) = [child for name, child in (await harness.children(JOB)).items() if name.startswith("master-")]
    return batch_job


async def test_after_attempts_without_progress_a_retry_waits_for_its_back_off(harness: Harness) -> None:
    """The length of each back-off has a table of its own: here an attempt takes as long as the machine is slow."""
    await harness.submit(tf_job(replicas("MASTER")))
    await harness.controlled_pod("master")
    await harness.had_failed()
    await (await harness.controlled_pod("master")).exit(255)
    await harness.until(lambda job: failures(job) == 1)
    harness.later(300)
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == [] and harness.running().total() == 0
    harness.later(60)
    await harness.until_holds(lambda: len(harness.entrances("master")) == 2)
    assert attempt_of(await _master(harness)) == "1"


async def test_the_first_failure_is_tried_again_at_once(harness: Harness) -> None:
    await harness.submit(tf_job(replicas("MASTER")))
    await (await harness.controlled_pod("master")).exit(255)
    await harness.until_holds(lambda: len(harness.entrances("master")) == 2)
    job = await harness.until(lambda job: restarts(job) == 1)
    assert failures(job) == 1


async def test_a_master_that_exits_1_fails_the_job_at_once_and_keeps_the_logs(harness: Harness) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    master = await harness.controlled_pod("master")
    await master.ask("print('division by zero', flush=True)")
    pod = await harness.pod("master")
    await master.exit(1)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    assert "MASTER 0: container tensorflow exited with code 1" in failed["message"]
    job = await harness.job()
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Failed")
    assert job["status"]["reason"] == failed["message"] and "completionTime" in job["status"]
    operator, api = await harness.operator()
    harness.later(3600)
    await looked(operator)
    assert api.writes == []
    assert harness.running() == {"worker": 2, "ps": 1}
    assert uid_of(await harness.pod("master")) == uid_of(pod)
    assert await harness.logs(name_of(pod)) == "division by zero\n"


@pytest.mark.parametrize("network", ["shared", "namespace"])
async def test_a_master_past_its_memory_limit_fails_the_job_at_once_with_the_reason(
    harness: Harness, network: str
) -> None:
    limited = controlled_container(resources={"limits": {"memory": "256Mi"}})
    await harness.submit(tf_job(replicas("MASTER", container=limited)))
    (await harness.controlled_pod("master")).tell("globals().__setitem__('data', b'x' * (1 << 30))")
    failed = await harness.condition("Failed")
    assert failed["reason"] == "PermanentFailure"
    text = "container tensorflow exited with code 137 (OOMKilled, its memory limit is 256Mi)"
    assert text in failed["message"], failed
    assert failures(await harness.job()) == 1


@pytest.mark.parametrize("code", [2, 127, 128, 255])
async def test_1_to_127_are_permanent_and_128_to_255_are_tried_again(harness: Harness, code: int) -> None:
    await harness.submit(tf_job(replicas("MASTER")))
    await harness.had_failed()
    await (await harness.controlled_pod("master")).exit(code)
    await harness.condition("Failed" if code < 128 else "Restarting")
    job = await harness.job()
    assert (failures(job), restarts(job)) == (1, 0)
    assert is_condition_true(job["status"]["conditions"], "Failed") == (code < 128)


class Scripted:
    """A master on a node that does not exist: the story writes the status of its pod."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def begin(self) -> None:
        await self.harness.submit(tf_job(replicas("MASTER", nodeName="of-the-story"), replicas("WORKER")))
        await self.says("Running", {"running": {}})
        await self.harness.until(lambda job: job.get("status", {}).get("state") == "Running")

    async def says(self, phase: str, state: Json, **more: Any) -> Json:
        pod = await self.harness.pod("master")
        containers = [{"name": "tensorflow", "restartCount": 0, "state": state}]
        status = {"phase": phase, "containerStatuses": containers, **more}
        return await self.harness.api.patch(POD, self.harness.namespace, name_of(pod), {"status": status}, "status")


async def test_out_of_memory_is_permanent_though_its_code_is_137(harness: Harness) -> None:
    scripted = Scripted(harness)
    await scripted.begin()
    await scripted.says("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    failed = await harness.condition("Failed")
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
async def test_a_disrupted_master_is_replaced_at_once_and_not_counted(harness: Harness, more: Json) -> None:
    scripted = Scripted(harness)
    await scripted.begin()
    first = await harness.pod("master")
    await scripted.says("Failed", {"terminated": {"exitCode": 1, "reason": "Error"}}, **more)
    job = await harness.until(lambda job: job["status"]["roles"]["MASTER"]["attempt"] == 1)
    await harness.gone(POD, name_of(first))
    second = await harness.pod("master")
    assert attempt_of(second) == "1" and uid_of(second) != uid_of(first)
    job = await harness.job()
    assert restarts(job) == 0 and "Failed" not in [condition["type"] for condition in job["status"]["conditions"]]


@pytest.mark.parametrize("role", ["master", "worker"])
async def test_a_pod_deleted_by_another_client_is_replaced_and_not_counted(harness: Harness, role: str) -> None:
    await harness.submit(tf_job(backoffLimit=0))
    await harness.every_replica_runs()
    pod = await harness.pod(role)
    before = await harness.controlled_pod(role)
    await harness.api.delete(POD, harness.namespace, name_of(pod))
    await harness.until_holds(before.gone.is_set)
    await harness.gone(POD, name_of(pod))
    harness.later(0 if role == "master" else 10)
    await harness.every_replica_runs()
    assert uid_of(await harness.pod(role)) != uid_of(pod)
    assert restarts(await harness.job()) == 0
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


async def test_restarts_in_place_count_against_the_limit_and_everything_is_stopped(harness: Harness) -> None:
    await harness.submit(tf_job(backoffLimit=0))
    await harness.every_replica_runs()
    await (await harness.controlled_pod("worker", 1)).exit(1)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "1 failed attempt, backoffLimit is 0" in failed["message"]
    await harness.until_holds(lambda: not harness.running())


async def test_a_master_may_fail_six_times_by_default(harness: Harness) -> None:
    await harness.submit(tf_job(replicas("MASTER"), replicas("WORKER")))
    for attempt in range(7):
        await (await harness.controlled_pod("master")).exit(130)
        await harness.until(lambda job, count=attempt + 1: failures(job) == count)
        harness.later(400)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded" and "backoffLimit is 6 by default" in failed["message"]
    assert len(harness.entrances("master")) == 7
    await harness.until_holds(lambda: not harness.running())


async def test_a_worker_that_failed_for_good_is_reported_and_the_job_continues(harness: Harness) -> None:
    """A user's restartPolicy Never: each attempt is a new pod, after the Job's own back-off."""
    await harness.submit(tf_job(replicas("MASTER"), replicas("WORKER", restartPolicy="Never")))
    await (await harness.controlled_pod("worker")).exit(3)
    await harness.until(lambda job: failures(job) == 1)
    harness.later(10)
    await harness.controlled_pod("worker")
    assert len(harness.entrances("worker")) == 2
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    assert restarts(await harness.job()) == 1
