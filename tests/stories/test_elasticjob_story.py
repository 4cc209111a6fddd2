"""An ElasticJob: a failed worker is replaced alone, and scaling does not disturb the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import POD, SERVICE, Harness, attempt_of, failures, looked, place_of, restarts
from tests.stories.job_fixtures import PLAYS, argument, elastic_job, workers
from trainyard.client import Invalid
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow

ELASTIC = PLAYS["ElasticJob"]


def lives(harness: Harness) -> list[int]:
    """How many processes each worker has had, by index."""
    counts = Counter(controlled.index for controlled in harness.entered if controlled.role == "worker")
    return [counts[index] for index in range(max(counts) + 1)]


@pytest.mark.parametrize("code", [130, 137, 138, 143])
async def test_a_worker_that_may_be_tried_again_is_replaced_alone(harness: Harness, code: int) -> None:
    await ELASTIC.begin(harness)
    first, other = await harness.pod("worker", 1), await harness.pod("worker", 0)
    worker = await harness.controlled_pod("worker", 1)
    await harness.had_failed()
    await (worker.kill() if code == 137 else worker.exit(code))
    condition = await harness.condition("Restarting")
    assert condition["reason"] == "ElasticJobRestarting"
    assert condition["message"].startswith("ElasticJob story is restarting because 1 Worker replica(s) failed.")
    assert f"exited with code {code}" in condition["message"]
    harness.later(10)
    await harness.until_holds(lambda: lives(harness) == [1, 2])
    job = await ELASTIC.runs(harness)
    second = await harness.pod("worker", 1)
    assert name_of(second) == name_of(first) == "story-worker-1" and uid_of(second) != uid_of(first)
    assert uid_of(await harness.pod("worker", 0)) == uid_of(other)
    assert restarts(job) == 1
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    await ELASTIC.succeed(harness)
    assert restarts(await harness.job()) == 1


@pytest.mark.parametrize(
    ("policy", "code"), [("ExitCode", 1), ("ExitCode", 139), ("ExitCode", 255), ("Never", 137), (None, 137)]
)
async def test_any_other_end_fails_the_job_at_once(harness: Harness, policy: str | None, code: int) -> None:
    await harness.submit(elastic_job(policy=policy))
    await ELASTIC.runs(harness)
    await (await harness.controlled_pod("worker")).exit(code)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "ElasticJobFailed"
    assert failed["message"].startswith("ElasticJob story is failed because 1 Worker replica(s) failed.")
    assert f"exited with code {code}" in failed["message"]
    operator, api = await harness.operator()
    harness.later(3600)
    await looked(operator)
    assert api.writes == [] and lives(harness) == [1, 1]
    assert "story-worker-0" in await harness.children(POD)  # its logs stay


async def test_under_on_failure_the_kubelet_restarts_a_worker_and_the_restart_counts(harness: Harness) -> None:
    await harness.submit(elastic_job(policy="OnFailure", backoffLimit=1))
    await ELASTIC.runs(harness)
    pod = await harness.pod("worker", 1)
    await (await harness.controlled_pod("worker", 1)).exit(1)
    await harness.until_holds(lambda: lives(harness) == [1, 2])
    await harness.until(lambda job: restarts(job) == 1)
    assert uid_of(await harness.pod("worker", 1)) == uid_of(pod)
    await (await harness.controlled_pod("worker", 0)).exit(1)
    failed = await harness.condition("Failed")
    assert failed["message"].startswith("Job story has failed because it has reached the specified backoff limit")
    await harness.until_holds(lambda: not harness.running())


async def test_the_limit_counts_every_replacement(harness: Harness) -> None:
    await ELASTIC.begin(harness, backoffLimit=1)
    for index in (0, 1):
        await (await harness.controlled_pod("worker", index)).exit(137)
        await harness.until(lambda job, count=index + 1: failures(job) == count)
        harness.later(10)
    failed = await harness.condition("Failed")
    assert "reached the specified backoff limit" in failed["message"]
    await harness.until_holds(lambda: not harness.running())


@pytest.mark.parametrize("policy", ["ExitCode", "Never"])
async def test_a_pod_deleted_by_another_client_is_replaced_and_not_counted(harness: Harness, policy: str) -> None:
    await harness.submit(elastic_job(policy=policy, backoffLimit=0))
    await ELASTIC.runs(harness)
    await harness.api.delete(POD, harness.namespace, "story-worker-0")
    await harness.until_holds(lambda: lives(harness) == [2, 1])
    assert restarts(await ELASTIC.runs(harness)) == 0
    await ELASTIC.succeed(harness)


async def test_a_worker_that_ended_well_is_left_while_the_other_is_replaced(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    await (await harness.controlled_pod("worker", 0)).exit(0)
    await harness.until(lambda job: workers(job) == {"active": 1, "succeeded": 1})
    await harness.had_failed()
    await (await harness.controlled_pod("worker", 1)).kill()
    await harness.condition("Restarting")
    harness.later(10)
    await harness.until_holds(lambda: lives(harness) == [1, 2])
    await (await harness.controlled_pod("worker", 1)).exit(0)
    await harness.condition("Succeeded")
    assert workers(await harness.job()) == {"succeeded": 2}


async def by_edit(harness: Harness, count: int) -> Json:
    return await harness.edit({"replicaSpecs": {"Worker": {"replicas": count}}})


async def by_scale(harness: Harness, count: int) -> Json:
    return await harness.api.patch(harness.kind.gvk, harness.namespace, "story", {"spec": {"replicas": count}}, "scale")


how = pytest.mark.parametrize("scale", [by_edit, by_scale], ids=["edit", "scale"])
Scale = Callable[[Harness, int], Awaitable[Json]]


@how
async def test_an_elastic_job_scales_up_and_down_without_disturbing_other_workers(
    harness: Harness, scale: Scale
) -> None:
    await ELASTIC.begin(harness)
    before = {name: uid_of(pod) for name, pod in (await harness.children(POD)).items()}
    await scale(harness, 4)
    await harness.every_replica_runs(worker=4)
    await harness.until(lambda job: workers(job) == {"active": 4})
    scale_now = await harness.api.get(harness.kind.gvk, harness.namespace, "story", "scale")
    assert (scale_now["spec"]["replicas"], scale_now["status"]["replicas"]) == (4, 4)
    pods = await harness.api.list(POD, harness.namespace, scale_now["status"]["selector"])
    assert len(pods["items"]) == 4
    for index in range(4):
        assert await (await harness.controlled_pod("worker", index)).ask(argument("nnodes")) == "1:4"
    await scale(harness, 1)
    await harness.every_replica_runs(worker=1)
    await harness.until(lambda job: workers(job) == {"active": 1})
    for gvk in (POD, SERVICE):
        for index in (1, 2, 3):
            await harness.gone(gvk, f"story-worker-{index}")
        assert list(await harness.children(gvk)) == ["story-worker-0"]
    await scale(harness, 2)
    job = await ELASTIC.runs(harness)
    after = {name: uid_of(pod) for name, pod in (await harness.children(POD)).items()}
    assert after["story-worker-0"] == before["story-worker-0"] and after["story-worker-1"] != before["story-worker-1"]
    assert lives(harness) == [1, 2, 1, 1] and restarts(job) == 0
    await ELASTIC.succeed(harness)


async def test_a_worker_scaled_away_during_its_back_off_is_not_created_again(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    await harness.had_failed()
    await (await harness.controlled_pod("worker", 1)).kill()
    await harness.condition("Restarting")
    await by_edit(harness, 1)
    await harness.gone(POD, "story-worker-1")
    harness.later(60)
    operator, _ = await harness.operator()
    await looked(operator)
    assert lives(harness) == [1, 1]
    assert failures(await harness.job()) == 1
    await (await harness.controlled_pod("worker")).exit(0)
    await harness.condition("Succeeded")


async def test_scaling_away_the_last_running_worker_completes_the_job(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    await (await harness.controlled_pod("worker", 0)).exit(0)
    await harness.until(lambda job: workers(job) == {"active": 1, "succeeded": 1})
    await by_scale(harness, 1)
    await harness.condition("Succeeded")
    await harness.until_holds(lambda: not harness.running())


@how
@pytest.mark.parametrize(("count", "bound"), [(1, "minReplicas"), (5, "maxReplicas")])
async def test_a_size_out_of_bounds_is_refused_with_its_path(
    harness: Harness, scale: Scale, count: int, bound: str
) -> None:
    before = await ELASTIC.begin(harness, minReplicas=2)
    with pytest.raises(Invalid) as refused:
        await scale(harness, count)
    assert "spec.replicaSpecs.Worker.replicas" in place_of(refused.value)
    assert f"replicas must not be {'below' if count == 1 else 'above'} {bound}" in refused.value.message
    assert (await harness.job())["spec"] == before["spec"]
    assert harness.running() == {"worker": 2}


async def test_bounds_that_leave_the_size_outside_are_refused(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    for bounds, path in (
        ({"minReplicas": 3}, "spec.replicaSpecs.Worker.replicas"),
        ({"maxReplicas": 1}, "spec.replicaSpecs.Worker.replicas"),
        ({"minReplicas": 5, "maxReplicas": 4}, "spec.minReplicas"),
        ({"rdzvEndpoint": ""}, "spec.rdzvEndpoint"),
    ):
        with pytest.raises(Invalid) as refused:
            await harness.edit(bounds)
        assert path in place_of(refused.value)


async def test_a_template_edit_applies_to_later_pods(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    template = (await harness.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"][0]["env"].append({"name": "RATE", "value": "0.5"})
    await harness.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": template}}, "maxReplicas": 5})
    rate = "os.environ.get('RATE')"
    assert await (await harness.controlled_pod("worker", 2)).ask(rate) == "0.5"
    assert await (await harness.controlled_pod("worker", 2)).ask(argument("nnodes")) == "1:5"
    assert await (await harness.controlled_pod("worker", 0)).ask(rate) is None
    assert lives(harness) == [1, 1, 1]
    await harness.had_failed()
    await (await harness.controlled_pod("worker", 0)).kill()
    await harness.condition("Restarting")
    harness.later(10)
    await harness.until_holds(lambda: lives(harness) == [2, 1, 1])
    assert await (await harness.controlled_pod("worker", 0)).ask(rate) == "0.5"


async def test_an_invalid_template_edit_is_reported_and_running_workers_continue(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    good = (await harness.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    mount = {"name": "not-there", "mountPath": "/data"}
    container = good["spec"]["containers"][0]
    bad = {"spec": {**good["spec"], "containers": [{**container, "volumeMounts": [mount]}]}}
    await harness.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": bad}}})
    condition = await harness.condition("Blocked")
    assert "story-worker-2" in condition["message"] and "not-there" in condition["message"]
    assert harness.running() == {"worker": 2} and lives(harness) == [1, 1]
    await harness.edit({"replicaSpecs": {"Worker": {"template": good}}})
    harness.later(3600)
    await harness.every_replica_runs(worker=3)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Blocked"))
    assert lives(harness) == [1, 1, 1]


async def test_an_invalid_template_edit_can_be_fixed_while_the_job_is_suspended(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    good = (await harness.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    container = good["spec"]["containers"][0]
    bad = {**container, "volumeMounts": [{"name": "not-there", "mountPath": "/data"}]}
    await harness.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {"containers": [bad]}}}}})
    await harness.condition("Blocked")
    await harness.edit({"suspend": True})
    await harness.condition("Suspended")
    await harness.edit(
        {"suspend": False, "replicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    )
    await harness.every_replica_runs(worker=3)
    await harness.condition("Running")


async def test_one_that_ran_for_long_is_replaced_at_once(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    harness.later(60)
    await (await harness.controlled_pod("worker", 1)).kill()
    await harness.until_holds(lambda: lives(harness) == [1, 2])
    assert restarts(await ELASTIC.runs(harness)) == 1


async def test_a_resumed_job_uses_a_new_rendezvous_id(harness: Harness) -> None:
    await ELASTIC.begin(harness)
    assert await (await harness.controlled_pod("worker")).ask(argument("rdzv_id")) == "story"
    await harness.edit({"suspend": True})
    await harness.until_holds(lambda: not harness.running())
    await harness.condition("Suspended")
    await by_edit(harness, 3)
    await harness.edit({"suspend": False})
    await harness.every_replica_runs(worker=3)
    assert [await (await harness.controlled_pod("worker", at)).ask(argument("rdzv_id")) for at in range(3)] == [
        "story-r1"
    ] * 3
    assert {attempt_of(child) for child in (await harness.children(POD)).values()} <= {"0", "1"}


async def started_over(harness: Harness) -> None:
    await harness.until_holds(lambda: lives(harness) == [1, 2])
    await ELASTIC.runs(harness)


async def grown(harness: Harness) -> None:
    await harness.every_replica_runs(worker=4)
    await harness.until(lambda job: workers(job) == {"active": 4})


async def shrunk(harness: Harness) -> None:
    await harness.every_replica_runs(worker=1)
    await harness.gone(SERVICE, "story-worker-1")
    await harness.until(lambda job: workers(job) == {"active": 1})


async def _kill(harness: Harness) -> None:
    await (await harness.controlled_pod("worker", 1)).kill()
    await harness.until(lambda pod: pod["status"].get("phase") == "Failed", POD, "story-worker-1")
    harness.later(15)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("change", "done", "end"),
    [
        (_kill, started_over, [1, 2]),
        (lambda harness: by_edit(harness, 4), grown, [1, 1, 1, 1]),
        (lambda harness: by_edit(harness, 1), shrunk, [1, 1]),
    ],
    ids=["a kill", "2 to 4", "2 to 1"],
)
async def test_operators_that_crash_at_every_write_create_each_object_once(
    harness: Harness, applied: bool, change: Any, done: Any, end: list[int]
) -> None:
    await ELASTIC.begin(harness)
    await harness.cluster.stop_operator()
    await change(harness)
    assert await deaths(harness, applied, lambda: done(harness)) >= 2
    assert lives(harness) == end
    assert restarts(await harness.job()) == end.count(2)


@pytest.mark.parametrize(
    ("policy", "left", "services"), [(None, 2, 2), ("None", 2, 2), ("Running", 1, 2), ("All", 0, 0)]
)
async def test_clean_pod_policy_determines_what_is_kept_after_the_end(
    harness: Harness, policy: str | None, left: int, services: int
) -> None:
    await ELASTIC.begin(harness, **({"cleanPodPolicy": policy} if policy else {}))
    await (await harness.controlled_pod("worker", 0)).exit(1)
    await harness.condition("Failed")
    operator, _ = await harness.operator()
    await looked(operator)
    await harness.until_holds(lambda: harness.running().total() == max(left - 1, 0))
    if policy == "All":
        await harness.nothing_left()
    if left == 1:
        await harness.gone(POD, "story-worker-1")
    assert (len(await harness.children(POD)), len(await harness.children(SERVICE))) == (left, services)


@pytest.mark.parametrize(("gvk", "name"), [(SERVICE, "story-worker-0"), (POD, "story-worker-1")])
async def test_a_foreign_object_with_a_childs_name_is_reported_and_not_changed(
    harness: Harness, gvk: GVK, name: str
) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": "nobody"} if gvk == POD else {"clusterIP": "None"}
    body = {"apiVersion": "v1", "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}
    other = await harness.api.create(gvk, harness.namespace, body)
    await harness.submit(elastic_job())
    condition = await harness.condition("NameConflict")
    assert f'{gvk.kind} "{name}" exists already and belongs to nobody' in condition["message"]
    assert "RuntimeId" not in condition["message"]  # an ElasticJob has none
    await harness.every_replica_runs(worker=1 if gvk == POD else 2)
    harness.later(3600)
    operator, _ = await harness.operator()
    await looked(operator)
    assert uid_of(await harness.api.get(gvk, harness.namespace, name)) == uid_of(other)
    await harness.api.delete(gvk, harness.namespace, name, grace_period_seconds=0)
    await harness.gone(gvk, name)
    harness.later(3600)
    await ELASTIC.runs(harness)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    await ELASTIC.succeed(harness)
