"""What holds for a job of any kind: its requests, what is left of it, and that an operator's restart has no effect."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stories.harness import Harness, looked
from tests.stories.job_fixtures import LIMITED_BY_OPERATOR, NEW, JobFixture
from trainyard.objects import is_condition_true

pytestmark = pytest.mark.slow

of_every_kind = pytest.mark.parametrize("job_fixture", NEW.values(), ids=NEW)
each_limited = pytest.mark.parametrize("job_fixture", LIMITED_BY_OPERATOR.values(), ids=LIMITED_BY_OPERATOR)


@of_every_kind
async def test_a_job_without_failures_costs_one_request_per_object_and_five_and_a_finished_one_none(
    harness: Harness, job_fixture: JobFixture
) -> None:
    operator, api = await harness.operator()
    before, sent = harness.cluster.requests(), len(api.sent)
    await job_fixture.begin(harness)
    await job_fixture.succeed(harness)
    await looked(operator)

    created = [write.path for write in api.writes if write.method == "POST"]
    assert len(created) == job_fixture.objects
    counts_only = [
        write for write in api.writes if write.path.endswith("/status") and b"conditions" not in (write.body or b"")
    ]
    hosts = [write for write in api.writes if write.method == "PATCH" and "/configmaps/" in write.path]  # of an MPIJob
    requests = len(api.writes) - len(counts_only) - len(hosts)
    assert requests <= job_fixture.objects + 5, [write.path for write in api.writes]
    assert [
        request.path for request in api.sent[sent:] if request.method == "GET" and "watch" not in dict(request.query)
    ] == []
    after = harness.cluster.requests()
    jobs = harness.kind.gvk.plural
    patched = sum(after[verb] - before[verb] for verb in (("patch", jobs), ("patch", f"{jobs}/status")))
    assert patched == len([write for write in api.writes if f"/{jobs}/story" in write.path])

    sent = len(api.sent)
    harness.later(86400)
    await looked(operator)
    assert [request.path for request in api.sent[sent:]] == []
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == [] and not [
        request for request in api.sent if request.method == "GET" and "story" in request.path
    ]


@of_every_kind
async def test_a_new_operator_does_not_change_a_running_job_and_a_deleted_job_leaves_nothing(
    harness: Harness, job_fixture: JobFixture
) -> None:
    before = await job_fixture.begin(harness)
    operator, api = await harness.operator()
    await looked(operator)
    # The list of an MPIJob's running hosts may be under way when its operator ends: the next one sends it.
    sends_hosts = any("/configmaps/" in write.path for write in api.writes)
    assert [write.path for write in api.writes if not (sends_hosts and write.method == "PATCH")] == []
    assert (await harness.job())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await harness.api.delete(harness.kind.gvk, harness.namespace, "story")
    await harness.gone(harness.kind.gvk, "story")
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())
    await looked(operator, jobs=0)
    assert [write.path for write in api.writes if write.method != "PATCH"] == []  # a word about it may come too late
    assert max(Counter(controlled.place for controlled in harness.entered).values()) == 1


@pytest.mark.slow
@of_every_kind
async def test_a_suspended_job_runs_nothing_and_continues_when_it_is_resumed(
    harness: Harness, job_fixture: JobFixture
) -> None:
    await job_fixture.begin(harness, activeDeadlineSeconds=60)
    await harness.edit({"suspend": True})
    await harness.condition("Suspended")
    await harness.until_holds(lambda: not harness.running())
    job = await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Running"))
    assert "startTime" not in job["status"]
    harness.later(3600)  # the deadline's clock stands still
    operator, _ = await harness.operator()
    await looked(operator)
    assert not harness.running()
    await harness.edit({"suspend": False})
    job = await job_fixture.runs(harness)
    assert not is_condition_true(job["status"]["conditions"], "Suspended") and "startTime" in job["status"]
    assert job["status"]["resumes"] == 1 and not job["status"]["restarts"]
    assert {
        place: count
        for place, count in Counter(controlled.place for controlled in harness.entered).items()
        if count != 2
    } == {}
    await job_fixture.succeed(harness)


@pytest.mark.slow
@of_every_kind
async def test_a_job_created_suspended_runs_nothing_until_it_is_resumed(
    harness: Harness, job_fixture: JobFixture
) -> None:
    operator, _ = await harness.operator()
    await harness.submit(job_fixture.make(suspend=True))
    await harness.condition("Suspended")
    await looked(operator)
    await harness.nothing_left()
    await harness.edit({"suspend": None})
    job = await job_fixture.runs(harness)
    assert "resumes" not in job["status"]


@pytest.mark.slow
@each_limited
async def test_a_deadline_stops_all_replicas_under_every_clean_pod_policy(
    harness: Harness, job_fixture: JobFixture
) -> None:
    await job_fixture.begin(harness, activeDeadlineSeconds=100, cleanPodPolicy="None")
    operator, _ = await harness.operator()
    harness.set_to((await harness.job())["status"]["startTime"], 95)
    await looked(operator)
    assert harness.running() == job_fixture.cast
    harness.later(5)
    failed = await harness.condition("Failed")
    assert "DeadlineExceeded" in (failed["reason"], (await harness.job())["status"]["cause"])
    await harness.until_holds(lambda: not harness.running())


@pytest.mark.slow
@each_limited
async def test_a_finished_job_is_deleted_when_its_time_is_over_and_takes_everything_along(
    harness: Harness, job_fixture: JobFixture
) -> None:
    await job_fixture.begin(harness, ttlSecondsAfterFinished=100, cleanPodPolicy="None")
    await job_fixture.succeed(harness)
    operator, api = await harness.operator()
    harness.set_to((await harness.job())["status"]["completionTime"], 95)
    await looked(operator)
    assert api.writes == []
    harness.later(5)
    await harness.gone(harness.kind.gvk, "story")
    await harness.nothing_left()
    await harness.until_holds(lambda: not harness.running())
    assert [write.method for write in api.writes] == [
        "PATCH",
        "DELETE",
    ]  # the fence, the job; the rest is the owner's way


@pytest.mark.slow
@of_every_kind
async def test_a_job_managed_by_another_controller_causes_no_requests(
    harness: Harness, job_fixture: JobFixture
) -> None:
    operator, api = await harness.operator()
    sent = len(api.sent)
    await harness.submit(job_fixture.make(managedBy="kueue.x-k8s.io/multikueue"))
    await looked(operator)
    assert [request.path for request in api.sent[sent:] if "watch" not in dict(request.query)] == []
    assert "status" not in await harness.job()
