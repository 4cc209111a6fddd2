"""What holds for a job of any kind: what it costs, what is left of it, and that nobody notices a new operator."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.harness import Stage, looked
from tests.stories.job_fixtures import NEW, Play
from trainyard.objects import is_condition_true

each = pytest.mark.parametrize("play", NEW.values(), ids=NEW)


@each
async def test_a_life_without_failures_costs_its_objects_and_five_and_a_finished_one_nothing(
    stage: Stage, play: Play
) -> None:
    operator, api = await stage.operator()
    before, sent = stage.cluster.asked(), len(api.sent)
    await play.begin(stage)
    await play.succeed(stage)
    await looked(operator)

    made = [one.path for one in api.writes if one.method == "POST"]
    assert len(made) == play.made
    counts_only = [one for one in api.writes if one.path.endswith("/status") and b"conditions" not in (one.body or b"")]
    assert len(api.writes) - len(counts_only) <= play.made + 5, [one.path for one in api.writes]
    assert [one.path for one in api.sent[sent:] if one.method == "GET" and "watch" not in dict(one.query)] == []
    after = stage.cluster.asked()
    jobs = stage.kind.gvk.plural
    patched = sum(after[verb] - before[verb] for verb in (("patch", jobs), ("patch", f"{jobs}/status")))
    assert patched == len([one for one in api.writes if f"/{jobs}/story" in one.path])

    sent = len(api.sent)
    stage.later(86400)
    await looked(operator)
    assert [one.path for one in api.sent[sent:]] == []
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == [] and not [one for one in api.sent if one.method == "GET" and "story" in one.path]


@each
async def test_a_new_operator_leaves_a_running_job_as_it_is_and_a_deleted_one_leaves_nothing(
    stage: Stage, play: Play
) -> None:
    before = await play.begin(stage)
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == []
    assert (await stage.job())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await stage.api.delete(stage.kind.gvk, stage.namespace, "story")
    await stage.gone(stage.kind.gvk, "story")
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())
    await looked(operator, jobs=0)
    assert [one.path for one in api.writes if one.method != "PATCH"] == []  # a word about it may come too late
    assert max(Counter(one.place for one in stage.entered).values()) == 1


@pytest.mark.slow
@each
async def test_a_suspended_job_runs_nothing_and_goes_on_when_it_is_resumed(stage: Stage, play: Play) -> None:
    await play.begin(stage, activeDeadlineSeconds=60)
    await stage.edit({"suspend": True})
    await stage.condition("Suspended")
    await stage.happens(lambda: not stage.running())
    job = await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Running"))
    assert "startTime" not in job["status"]
    stage.later(3600)  # the deadline's clock stands still
    operator, _ = await stage.operator()
    await looked(operator)
    assert not stage.running()
    await stage.edit({"suspend": False})
    job = await play.runs(stage)
    assert not is_condition_true(job["status"]["conditions"], "Suspended") and "startTime" in job["status"]
    assert job["status"]["resumes"] == 1 and not job["status"]["restarts"]
    assert {place: count for place, count in Counter(one.place for one in stage.entered).items() if count != 2} == {}
    await play.succeed(stage)


@pytest.mark.slow
@each
async def test_a_job_born_suspended_runs_nothing_until_it_is_resumed(stage: Stage, play: Play) -> None:
    operator, _ = await stage.operator()
    await stage.submit(play.make(suspend=True))
    await stage.condition("Suspended")
    await looked(operator)
    assert [await stage.children(gvk) for gvk in stage.kind.roles.child_resources] == [{}] * len(
        stage.kind.roles.child_resources
    )
    await stage.edit({"suspend": None})
    job = await play.runs(stage)
    assert "resumes" not in job["status"]


@pytest.mark.slow
@each
async def test_a_deadline_stops_everything_whatever_clean_pod_policy_says(stage: Stage, play: Play) -> None:
    await play.begin(stage, activeDeadlineSeconds=100, cleanPodPolicy="None")
    operator, _ = await stage.operator()
    stage.set_to((await stage.job())["status"]["startTime"], 95)
    await looked(operator)
    assert stage.running() == play.cast
    stage.later(5)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "DeadlineExceeded"
    await stage.happens(lambda: not stage.running())


@pytest.mark.slow
@each
async def test_a_finished_job_is_deleted_when_its_time_is_over_and_takes_everything_along(
    stage: Stage, play: Play
) -> None:
    await play.begin(stage, ttlSecondsAfterFinished=100, cleanPodPolicy="None")
    await play.succeed(stage)
    operator, api = await stage.operator()
    stage.set_to((await stage.job())["status"]["completionTime"], 95)
    await looked(operator)
    assert api.writes == []
    stage.later(5)
    await stage.gone(stage.kind.gvk, "story")
    await stage.nothing_left()
    await stage.happens(lambda: not stage.running())
    assert [one.method for one in api.writes] == ["PATCH", "DELETE"]  # the fence, the job; the rest is the owner's way


@pytest.mark.slow
@each
async def test_a_job_that_somebody_else_manages_costs_no_request_at_all(stage: Stage, play: Play) -> None:
    operator, api = await stage.operator()
    sent = len(api.sent)
    await stage.submit(play.make(managedBy="example.com/other"))
    await looked(operator)
    assert [one.path for one in api.sent[sent:] if "watch" not in dict(one.query)] == []
    assert "status" not in await stage.job()
