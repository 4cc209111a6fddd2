"""An ElasticJob: who dies is replaced alone, and it grows and shrinks while the others train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import POD, SERVICE, Stage, attempt_of, failures, looked, place_of, restarts
from tests.stories.job_fixtures import PLAYS, argument, elastic_job, workers
from trainyard.client import Invalid
from trainyard.objects import GVK, Json, is_condition_true, name_of, uid_of

pytestmark = pytest.mark.slow

ELASTIC = PLAYS["ElasticJob"]


def lives(stage: Stage) -> list[int]:
    """How many processes each worker has had, by index."""
    counts = Counter(one.index for one in stage.entered if one.role == "worker")
    return [counts[index] for index in range(max(counts) + 1)]


@pytest.mark.parametrize("code", [130, 137, 138, 143])
async def test_a_worker_that_may_be_tried_again_is_replaced_alone(stage: Stage, code: int) -> None:
    await ELASTIC.begin(stage)
    first, other = await stage.pod("worker", 1), await stage.pod("worker", 0)
    worker = await stage.actor("worker", 1)
    await (worker.kill() if code == 137 else worker.exit(code))
    said = await stage.condition("Restarting")
    assert said["reason"] == "ElasticJobRestarting"
    assert said["message"].startswith("ElasticJob story is restarting because 1 Worker replica(s) failed.")
    assert f"exited with code {code}" in said["message"]
    stage.later(10)
    await stage.happens(lambda: lives(stage) == [1, 2])
    job = await ELASTIC.runs(stage)
    second = await stage.pod("worker", 1)
    assert name_of(second) == name_of(first) == "story-worker-1" and uid_of(second) != uid_of(first)
    assert uid_of(await stage.pod("worker", 0)) == uid_of(other)
    assert restarts(job) == 1
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Restarting"))
    await ELASTIC.succeed(stage)
    assert restarts(await stage.job()) == 1


@pytest.mark.parametrize(
    ("policy", "code"), [("ExitCode", 1), ("ExitCode", 139), ("ExitCode", 255), ("Never", 137), (None, 137)]
)
async def test_any_other_end_fails_the_job_at_once(stage: Stage, policy: str | None, code: int) -> None:
    await stage.submit(elastic_job(policy=policy))
    await ELASTIC.runs(stage)
    await (await stage.actor("worker")).exit(code)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "ElasticJobFailed"
    assert failed["message"].startswith("ElasticJob story is failed because 1 Worker replica(s) failed.")
    assert f"exited with code {code}" in failed["message"]
    operator, api = await stage.operator()
    stage.later(3600)
    await looked(operator)
    assert api.writes == [] and lives(stage) == [1, 1]
    assert "story-worker-0" in await stage.children(POD)  # its logs stay


async def test_under_on_failure_its_node_starts_it_again_and_that_counts(stage: Stage) -> None:
    await stage.submit(elastic_job(policy="OnFailure", backoffLimit=1))
    await ELASTIC.runs(stage)
    pod = await stage.pod("worker", 1)
    await (await stage.actor("worker", 1)).exit(1)
    await stage.happens(lambda: lives(stage) == [1, 2])
    await stage.until(lambda job: restarts(job) == 1)
    assert uid_of(await stage.pod("worker", 1)) == uid_of(pod)
    await (await stage.actor("worker", 0)).exit(1)
    failed = await stage.condition("Failed")
    assert failed["message"].startswith("Job story has failed because it has reached the specified backoff limit")
    await stage.happens(lambda: not stage.running())


async def test_the_limit_counts_every_replacement(stage: Stage) -> None:
    await ELASTIC.begin(stage, backoffLimit=1)
    for index in (0, 1):
        await (await stage.actor("worker", index)).exit(137)
        await stage.until(lambda job, count=index + 1: failures(job) == count)
        stage.later(10)
    failed = await stage.condition("Failed")
    assert "reached the specified backoff limit" in failed["message"]
    await stage.happens(lambda: not stage.running())


@pytest.mark.parametrize("policy", ["ExitCode", "Never"])
async def test_a_pod_that_somebody_deletes_is_replaced_and_not_counted(stage: Stage, policy: str) -> None:
    await stage.submit(elastic_job(policy=policy, backoffLimit=0))
    await ELASTIC.runs(stage)
    await stage.api.delete(POD, stage.namespace, "story-worker-0")
    await stage.happens(lambda: lives(stage) == [2, 1])
    assert restarts(await ELASTIC.runs(stage)) == 0
    await ELASTIC.succeed(stage)


async def test_a_worker_that_ended_well_is_left_while_the_other_is_replaced(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    await (await stage.actor("worker", 0)).exit(0)
    await stage.until(lambda job: workers(job) == {"active": 1, "succeeded": 1})
    await (await stage.actor("worker", 1)).kill()
    await stage.condition("Restarting")
    stage.later(10)
    await stage.happens(lambda: lives(stage) == [1, 2])
    await (await stage.actor("worker", 1)).exit(0)
    await stage.condition("Succeeded")
    assert workers(await stage.job()) == {"succeeded": 2}


async def by_edit(stage: Stage, count: int) -> Json:
    return await stage.edit({"replicaSpecs": {"Worker": {"replicas": count}}})


async def by_scale(stage: Stage, count: int) -> Json:
    return await stage.api.patch(stage.kind.gvk, stage.namespace, "story", {"spec": {"replicas": count}}, "scale")


how = pytest.mark.parametrize("scale", [by_edit, by_scale], ids=["edit", "scale"])
Scale = Callable[[Stage, int], Awaitable[Json]]


@how
async def test_it_grows_and_shrinks_and_nobody_else_is_disturbed(stage: Stage, scale: Scale) -> None:
    await ELASTIC.begin(stage)
    before = {name: uid_of(one) for name, one in (await stage.children(POD)).items()}
    await scale(stage, 4)
    await stage.everybody(worker=4)
    await stage.until(lambda job: workers(job) == {"active": 4})
    seen = await stage.api.get(stage.kind.gvk, stage.namespace, "story", "scale")
    assert (seen["spec"]["replicas"], seen["status"]["replicas"]) == (4, 4)
    pods = await stage.api.list(POD, stage.namespace, seen["status"]["selector"])
    assert len(pods["items"]) == 4
    for index in range(4):
        assert await (await stage.actor("worker", index)).ask(argument("nnodes")) == "1:4"
    await scale(stage, 1)
    await stage.everybody(worker=1)
    await stage.until(lambda job: workers(job) == {"active": 1})
    for gvk in (POD, SERVICE):
        for index in (1, 2, 3):
            await stage.gone(gvk, f"story-worker-{index}")
        assert list(await stage.children(gvk)) == ["story-worker-0"]
    await scale(stage, 2)
    job = await ELASTIC.runs(stage)
    after = {name: uid_of(one) for name, one in (await stage.children(POD)).items()}
    assert after["story-worker-0"] == before["story-worker-0"] and after["story-worker-1"] != before["story-worker-1"]
    assert lives(stage) == [1, 2, 1, 1] and restarts(job) == 0
    await ELASTIC.succeed(stage)


async def test_one_that_is_scaled_away_while_it_waits_to_be_replaced_is_not_made_again(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    await (await stage.actor("worker", 1)).kill()
    await stage.condition("Restarting")
    await by_edit(stage, 1)
    await stage.gone(POD, "story-worker-1")
    stage.later(60)
    operator, _ = await stage.operator()
    await looked(operator)
    assert lives(stage) == [1, 1]
    assert failures(await stage.job()) == 1
    await (await stage.actor("worker")).exit(0)
    await stage.condition("Succeeded")


async def test_when_the_last_that_runs_is_scaled_away_the_job_has_succeeded(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    await (await stage.actor("worker", 0)).exit(0)
    await stage.until(lambda job: workers(job) == {"active": 1, "succeeded": 1})
    await by_scale(stage, 1)
    await stage.condition("Succeeded")
    await stage.happens(lambda: not stage.running())


@how
@pytest.mark.parametrize(("count", "bound"), [(1, "minReplicas"), (5, "maxReplicas")])
async def test_a_size_out_of_bounds_is_refused_with_its_path(
    stage: Stage, scale: Scale, count: int, bound: str
) -> None:
    before = await ELASTIC.begin(stage, minReplicas=2)
    with pytest.raises(Invalid) as refused:
        await scale(stage, count)
    assert "spec.replicaSpecs.Worker.replicas" in place_of(refused.value)
    assert f"replicas must not be {'below' if count == 1 else 'above'} {bound}" in refused.value.message
    assert (await stage.job())["spec"] == before["spec"]
    assert stage.running() == {"worker": 2}


async def test_bounds_that_leave_the_size_outside_are_refused(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    for bounds, path in (
        ({"minReplicas": 3}, "spec.replicaSpecs.Worker.replicas"),
        ({"maxReplicas": 1}, "spec.replicaSpecs.Worker.replicas"),
        ({"minReplicas": 5, "maxReplicas": 4}, "spec.minReplicas"),
        ({"rdzvEndpoint": ""}, "spec.rdzvEndpoint"),
    ):
        with pytest.raises(Invalid) as refused:
            await stage.edit(bounds)
        assert path in place_of(refused.value)


async def test_a_template_edit_holds_for_who_comes_after_it(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    template = (await stage.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"][0]["env"].append({"name": "RATE", "value": "0.5"})
    await stage.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": template}}, "maxReplicas": 5})
    rate = "os.environ.get('RATE')"
    assert await (await stage.actor("worker", 2)).ask(rate) == "0.5"
    assert await (await stage.actor("worker", 2)).ask(argument("nnodes")) == "1:5"
    assert await (await stage.actor("worker", 0)).ask(rate) is None
    assert lives(stage) == [1, 1, 1]
    await (await stage.actor("worker", 0)).kill()
    await stage.condition("Restarting")
    stage.later(10)
    await stage.happens(lambda: lives(stage) == [2, 1, 1])
    assert await (await stage.actor("worker", 0)).ask(rate) == "0.5"


async def test_an_edit_that_no_pod_can_be_made_from_is_said_and_who_trains_trains_on(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    good = (await stage.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    mount = {"name": "not-there", "mountPath": "/data"}
    container = good["spec"]["containers"][0]
    bad = {"spec": {**good["spec"], "containers": [{**container, "volumeMounts": [mount]}]}}
    await stage.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": bad}}})
    said = await stage.condition("Blocked")
    assert "story-worker-2" in said["message"] and "not-there" in said["message"]
    assert stage.running() == {"worker": 2} and lives(stage) == [1, 1]
    await stage.edit({"replicaSpecs": {"Worker": {"template": good}}})
    stage.later(3600)
    await stage.everybody(worker=3)
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Blocked"))
    assert lives(stage) == [1, 1, 1]


async def test_an_edit_that_no_pod_can_be_made_from_is_mended_while_the_job_is_suspended(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    good = (await stage.job())["spec"]["replicaSpecs"]["Worker"]["template"]
    container = good["spec"]["containers"][0]
    bad = {**container, "volumeMounts": [{"name": "not-there", "mountPath": "/data"}]}
    await stage.edit({"replicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {"containers": [bad]}}}}})
    await stage.condition("Blocked")
    await stage.edit({"suspend": True})
    await stage.condition("Suspended")
    await stage.edit(
        {"suspend": False, "replicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    )
    await stage.everybody(worker=3)
    await stage.condition("Running")


async def test_one_that_ran_for_long_is_replaced_at_once(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    stage.later(60)
    await (await stage.actor("worker", 1)).kill()
    await stage.happens(lambda: lives(stage) == [1, 2])
    assert restarts(await ELASTIC.runs(stage)) == 1


async def test_after_a_pause_it_meets_at_a_new_rendezvous(stage: Stage) -> None:
    await ELASTIC.begin(stage)
    assert await (await stage.actor("worker")).ask(argument("rdzv_id")) == "story"
    await stage.edit({"suspend": True})
    await stage.happens(lambda: not stage.running())
    await stage.condition("Suspended")
    await by_edit(stage, 3)
    await stage.edit({"suspend": False})
    await stage.everybody(worker=3)
    assert [await (await stage.actor("worker", at)).ask(argument("rdzv_id")) for at in range(3)] == ["story-r1"] * 3
    assert {attempt_of(one) for one in (await stage.children(POD)).values()} <= {"0", "1"}


async def started_over(stage: Stage) -> None:
    await stage.happens(lambda: lives(stage) == [1, 2])
    await ELASTIC.runs(stage)


async def grown(stage: Stage) -> None:
    await stage.everybody(worker=4)
    await stage.until(lambda job: workers(job) == {"active": 4})


async def shrunk(stage: Stage) -> None:
    await stage.everybody(worker=1)
    await stage.gone(SERVICE, "story-worker-1")
    await stage.until(lambda job: workers(job) == {"active": 1})


async def _kill(stage: Stage) -> None:
    await (await stage.actor("worker", 1)).kill()
    await stage.until(lambda pod: pod["status"].get("phase") == "Failed", POD, "story-worker-1")
    stage.later(15)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("change", "done", "end"),
    [
        (_kill, started_over, [1, 2]),
        (lambda stage: by_edit(stage, 4), grown, [1, 1, 1, 1]),
        (lambda stage: by_edit(stage, 1), shrunk, [1, 1]),
    ],
    ids=["a kill", "2 to 4", "2 to 1"],
)
async def test_operators_that_die_at_every_write_do_it_once(
    stage: Stage, applied: bool, change: Any, done: Any, end: list[int]
) -> None:
    await ELASTIC.begin(stage)
    await stage.cluster.stop_operator()
    await change(stage)
    assert await deaths(stage, applied, lambda: done(stage)) >= 2
    assert lives(stage) == end
    assert restarts(await stage.job()) == end.count(2)


@pytest.mark.parametrize(
    ("policy", "left", "services"), [(None, 2, 2), ("None", 2, 2), ("Running", 1, 2), ("All", 0, 0)]
)
async def test_clean_pod_policy_says_what_stays_after_the_end(
    stage: Stage, policy: str | None, left: int, services: int
) -> None:
    await ELASTIC.begin(stage, **({"cleanPodPolicy": policy} if policy else {}))
    await (await stage.actor("worker", 0)).exit(1)
    await stage.condition("Failed")
    operator, _ = await stage.operator()
    await looked(operator)
    await stage.happens(lambda: stage.running().total() == max(left - 1, 0))
    if policy == "All":
        await stage.nothing_left()
    if left == 1:
        await stage.gone(POD, "story-worker-1")
    assert (len(await stage.children(POD)), len(await stage.children(SERVICE))) == (left, services)


@pytest.mark.parametrize(("gvk", "name"), [(SERVICE, "story-worker-0"), (POD, "story-worker-1")])
async def test_a_foreign_object_with_our_name_is_said_and_left_alone(stage: Stage, gvk: GVK, name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": "nobody"} if gvk == POD else {"clusterIP": "None"}
    body = {"apiVersion": "v1", "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}
    other = await stage.api.create(gvk, stage.namespace, body)
    await stage.submit(elastic_job())
    said = await stage.condition("NameConflict")
    assert f'{gvk.kind} "{name}" exists already and belongs to nobody' in said["message"]
    assert "RuntimeId" not in said["message"]  # an ElasticJob has none
    await stage.everybody(worker=1 if gvk == POD else 2)
    stage.later(3600)
    operator, _ = await stage.operator()
    await looked(operator)
    assert uid_of(await stage.api.get(gvk, stage.namespace, name)) == uid_of(other)
    await stage.api.delete(gvk, stage.namespace, name, grace_period_seconds=0)
    await stage.gone(gvk, name)
    stage.later(3600)
    await ELASTIC.runs(stage)
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    await ELASTIC.succeed(stage)
