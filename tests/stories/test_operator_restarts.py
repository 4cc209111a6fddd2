"""The operator is killed and another takes over, without an effect on the pods."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import CONFIG_MAP, JOB, SERVICE, TFJOB, Harness, Noted, looked, replicas, tally, tf_job
from tests.stories.job_fixtures import NEW, JobFixture
from trainyard.client import ApiRequest
from trainyard.objects import Json, is_condition_true

pytestmark = pytest.mark.slow

DEFAULT_PS = {"replicas": 1, "tfReplicaType": "PS"}


def entrances(harness: Harness) -> Counter[str]:
    return Counter(controlled.place for controlled in harness.entered)


async def test_a_new_operator_does_not_change_a_running_job(harness: Harness) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    before = await harness.status_counts_every_replica()
    for _ in range(3):
        operator, api = await harness.operator()
        await looked(operator)
        assert api.writes == []
    assert (await harness.job())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert max(entrances(harness).values()) == 1
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


async def test_changes_made_without_an_operator_are_observed_by_the_next(harness: Harness) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    await harness.status_counts_every_replica()
    await harness.cluster.stop_operator()
    worker = await harness.controlled_pod("worker")
    await worker.kill()
    await harness.every_replica_runs()  # the node restarts it without anybody's advice
    await (await harness.controlled_pod("master")).exit(0)
    await harness.until(lambda job: job["status"].get("succeeded"), JOB, next(iter(await masters(harness))))
    assert not is_condition_true((await harness.job())["status"]["conditions"], "Succeeded")
    await harness.operator()
    await harness.condition("Succeeded")
    assert (await harness.job())["status"]["restarts"] == 1


async def masters(harness: Harness) -> dict[str, Json]:
    return {name: child for name, child in (await harness.children(JOB)).items() if name.startswith("master-")}


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_operators_that_die_at_every_write_make_everything_once(harness: Harness, applied: bool) -> None:
    """What one tried is tried by the next, which dies at the write after it, until one has nothing new to say."""
    await harness.submit(tf_job(replicas("MASTER"), replicas("WORKER", 2), DEFAULT_PS))

    async def settled() -> None:
        await harness.every_replica_runs(master=1, worker=2)
        await harness.until(
            lambda job: tally(job)["MASTER"] == {"Running": 1} and tally(job)["WORKER"] == {"Running": 2}
        )

    # The spec, the statuses, a Service, a ConfigMap, four Jobs, a fence; of writes side by side several may be done.
    assert await deaths(harness, applied, settled) >= (6 if applied else 10)
    assert max(entrances(harness).values()) == 1
    assert [len(await harness.children(gvk)) for gvk in (JOB, SERVICE, CONFIG_MAP)] == [4, 1, 1]
    await harness.operator()
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("job_fixture", NEW.values(), ids=NEW)
async def test_the_same_holds_for_jobs_of_every_kind(harness: Harness, job_fixture: JobFixture, applied: bool) -> None:
    await harness.submit(job_fixture.make())
    # Of the objects side by side several may be made, and known to be, before one of them dies.
    assert await deaths(harness, applied, lambda: job_fixture.runs(harness)) >= min(job_fixture.objects, 3)
    assert max(entrances(harness).values()) == 1
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == []
    await job_fixture.succeed(harness)


SEVERAL = [name for name, job_fixture in NEW.items() if job_fixture.objects > 4 or name == "ElasticJob"]


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", SEVERAL)
async def test_operators_that_die_while_a_job_is_suspended_resumed_and_cleaned_up_do_each_once(
    harness: Harness, name: str, applied: bool
) -> None:
    job_fixture = NEW[name]
    await job_fixture.begin(harness, cleanPodPolicy="All")

    async def suspended() -> None:
        await harness.until_holds(lambda: not harness.running())
        await harness.condition("Suspended")

    async def cleaned() -> None:
        await harness.condition("Succeeded")
        await harness.nothing_left()
        await harness.until_holds(lambda: not harness.running())

    for suspend, done in ((True, suspended), (False, lambda: job_fixture.runs(harness))):
        await harness.cluster.stop_operator()
        await harness.edit({"suspend": suspend})
        assert await deaths(harness, applied, done) >= 2
    assert set(entrances(harness).values()) == {2}
    job = await harness.job()
    assert job["status"]["resumes"] == 1 and not job["status"]["restarts"]
    await harness.cluster.stop_operator()
    for role, index in job_fixture.last:
        await (await harness.controlled_pod(role, index)).exit(0)
    assert await deaths(harness, applied, cleaned) >= 2
    assert set(entrances(harness).values()) == {2}


async def test_a_job_deleted_during_its_creation_leaves_no_children(harness: Harness) -> None:
    """The operator dies when its first Job is made; the job is deleted before another operator is there."""
    died = asyncio.Event()

    def die(request: ApiRequest) -> None:
        if died.is_set() or (request.method == "POST" and request.path.endswith("/jobs")):
            died.set()
            raise asyncio.CancelledError

    def doom(api: Noted) -> None:
        api.after = die

    await harness.operator(doom)
    await harness.submit(tf_job())
    await asyncio.wait_for(died.wait(), harness.patience)
    await harness.cluster.stop_operator()
    assert await harness.children(JOB)
    await harness.api.delete(TFJOB, harness.namespace, "story")
    operator, api = await harness.operator()
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())
    await looked(operator, jobs=0)
    assert api.writes == []
    assert max(entrances(harness).values(), default=1) == 1


async def test_a_finished_job_costs_no_request_neither_then_nor_of_a_new_operator(harness: Harness) -> None:
    operator, api = await harness.operator()
    await harness.submit(tf_job(cleanPodPolicy="All"))
    await harness.every_replica_runs()
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    await harness.nothing_left()
    await looked(operator)
    sent = len(api.sent)
    harness.later(86400)
    await looked(operator)
    assert [request.path for request in api.sent[sent:]] == []
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == [] and not [
        request for request in api.sent if request.method == "GET" and "story" in request.path
    ]
