"""The operator dies and another takes over. Nobody in the pods may notice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.stories.crash_injection import deaths
from tests.stories.harness import CONFIG_MAP, JOB, SERVICE, TFJOB, Noted, Stage, looked, replicas, tally, tf_job
from tests.stories.job_fixtures import NEW, Play
from trainyard.client import ApiRequest
from trainyard.objects import Json, is_condition_true

pytestmark = pytest.mark.slow

DEFAULT_PS = {"replicas": 1, "tfReplicaType": "PS"}


def entrances(stage: Stage) -> Counter[str]:
    return Counter(one.place for one in stage.entered)


async def test_a_new_operator_leaves_a_running_job_as_it_is(stage: Stage) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    before = await stage.everybody_is_said()
    for _ in range(3):
        operator, api = await stage.operator()
        await looked(operator)
        assert api.writes == []
    assert (await stage.job())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert max(entrances(stage).values()) == 1
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


async def test_what_happened_while_there_was_no_operator_is_seen_by_the_next(stage: Stage) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    await stage.everybody_is_said()
    await stage.cluster.stop_operator()
    worker = await stage.actor("worker")
    await worker.kill()
    await stage.everybody()  # the node restarts it without anybody's advice
    await (await stage.actor("master")).exit(0)
    await stage.until(lambda job: job["status"].get("succeeded"), JOB, next(iter(await masters(stage))))
    assert not is_condition_true((await stage.job())["status"]["conditions"], "Succeeded")
    await stage.operator()
    await stage.condition("Succeeded")
    assert (await stage.job())["status"]["restarts"] == 1


async def masters(stage: Stage) -> dict[str, Json]:
    return {name: one for name, one in (await stage.children(JOB)).items() if name.startswith("master-")}


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
async def test_operators_that_die_at_every_write_make_everything_once(stage: Stage, applied: bool) -> None:
    """What one tried is tried by the next, which dies at the write after it, until one has nothing new to say."""
    await stage.submit(tf_job(replicas("MASTER"), replicas("WORKER", 2), DEFAULT_PS))

    async def settled() -> None:
        await stage.everybody(master=1, worker=2)
        await stage.until(lambda job: tally(job)["MASTER"] == {"Running": 1} and tally(job)["WORKER"] == {"Running": 2})

    # The spec, the statuses, a Service, a ConfigMap, four Jobs, a fence; of writes side by side several may be done.
    assert await deaths(stage, applied, settled) >= (6 if applied else 10)
    assert max(entrances(stage).values()) == 1
    assert [len(await stage.children(gvk)) for gvk in (JOB, SERVICE, CONFIG_MAP)] == [4, 1, 1]
    await stage.operator()
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("play", NEW.values(), ids=NEW)
async def test_so_it_is_with_jobs_of_every_kind(stage: Stage, play: Play, applied: bool) -> None:
    await stage.submit(play.make())
    # Of the objects side by side several may be made, and known to be, before one of them dies.
    assert await deaths(stage, applied, lambda: play.runs(stage)) >= min(play.made, 3)
    assert max(entrances(stage).values()) == 1
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == []
    await play.succeed(stage)


SEVERAL = [name for name, play in NEW.items() if play.made > 4 or name == "ElasticJob"]


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", SEVERAL)
async def test_operators_that_die_while_a_job_is_suspended_resumed_and_cleaned_up_do_each_once(
    stage: Stage, name: str, applied: bool
) -> None:
    play = NEW[name]
    await play.begin(stage, cleanPodPolicy="All")

    async def suspended() -> None:
        await stage.happens(lambda: not stage.running())
        await stage.condition("Suspended")

    async def cleaned() -> None:
        await stage.condition("Succeeded")
        await stage.nothing_left()
        await stage.happens(lambda: not stage.running())

    for suspend, done in ((True, suspended), (False, lambda: play.runs(stage))):
        await stage.cluster.stop_operator()
        await stage.edit({"suspend": suspend})
        assert await deaths(stage, applied, done) >= 2
    assert set(entrances(stage).values()) == {2}
    job = await stage.job()
    assert job["status"]["resumes"] == 1 and not job["status"]["restarts"]
    await stage.cluster.stop_operator()
    for role, index in play.last:
        await (await stage.actor(role, index)).exit(0)
    assert await deaths(stage, applied, cleaned) >= 2
    assert set(entrances(stage).values()) == {2}


async def test_a_job_deleted_in_the_middle_of_its_creation_goes_and_nothing_more_is_made(stage: Stage) -> None:
    """The operator dies when its first Job is made; the job is deleted before another operator is there."""
    died = asyncio.Event()

    def die(request: ApiRequest) -> None:
        if died.is_set() or (request.method == "POST" and request.path.endswith("/jobs")):
            died.set()
            raise asyncio.CancelledError

    def doom(api: Noted) -> None:
        api.after = die

    await stage.operator(doom)
    await stage.submit(tf_job())
    await asyncio.wait_for(died.wait(), stage.patience)
    await stage.cluster.stop_operator()
    assert await stage.children(JOB)
    await stage.api.delete(TFJOB, stage.namespace, "story")
    operator, api = await stage.operator()
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())
    await looked(operator, jobs=0)
    assert api.writes == []
    assert max(entrances(stage).values(), default=1) == 1


async def test_a_finished_job_costs_no_request_neither_then_nor_of_a_new_operator(stage: Stage) -> None:
    operator, api = await stage.operator()
    await stage.submit(tf_job(cleanPodPolicy="All"))
    await stage.everybody()
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    await stage.nothing_left()
    await looked(operator)
    sent = len(api.sent)
    stage.later(86400)
    await looked(operator)
    assert [one.path for one in api.sent[sent:]] == []
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == [] and not [one for one in api.sent if one.method == "GET" and "story" in one.path]
