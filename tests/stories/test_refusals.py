"""What the API server, or somebody else, does not allow: said, and neither forced nor forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stories.harness import JOB, SERVICE, TFJOB, Noted, Stage, actor, looked, replicas, tf_job
from trainyard import kinds
from trainyard.client import ApiRequest, Forbidden, Invalid
from trainyard.objects import Json, find_condition, is_condition_true, name_of, uid_of
from trainyard.objects.resources import CRD

pytestmark = pytest.mark.slow

OWN = {"RuntimeId": "own1"}


async def test_a_foreign_service_with_our_name_is_said_and_left_alone_and_the_job_goes_on_when_it_goes(
    stage: Stage,
) -> None:
    meta = {"name": "tfjob-own1", "labels": {"of": "somebody"}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 80}]}}
    other = await stage.api.create(SERVICE, stage.namespace, body)
    operator, _ = await stage.operator()
    await stage.submit(tf_job(**OWN))
    said = await stage.condition("NameConflict")
    assert 'Service "tfjob-own1" exists already and belongs to nobody' in said["message"]
    await stage.everybody()  # everything else is made all the same
    stage.later(3600)
    await looked(operator)
    assert await stage.api.get(SERVICE, stage.namespace, "tfjob-own1") == other
    await stage.api.delete(SERVICE, stage.namespace, "tfjob-own1")
    stage.later(3600)
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    ours = await stage.api.get(SERVICE, stage.namespace, "tfjob-own1")
    assert ours["metadata"]["ownerReferences"][0]["uid"] == uid_of(await stage.job())
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")


async def test_another_jobs_child_with_our_name_is_neither_taken_nor_swept(stage: Stage) -> None:
    """Two jobs with one preset RuntimeId: the second never touches what the first has."""
    first = await stage.submit(tf_job(replicas("MASTER"), name="first", **OWN))
    await stage.actor("master")
    await stage.submit(tf_job(replicas("MASTER"), name="second", cleanPodPolicy="All", **OWN))
    job = await stage.until(
        lambda job: is_condition_true(job.get("status", {}).get("conditions"), "NameConflict"), TFJOB, "second"
    )
    assert "belongs to TfJob first" in (find_condition(job["status"]["conditions"], "NameConflict") or {})["message"]
    await stage.api.delete(TFJOB, stage.namespace, "second")
    await stage.gone(TFJOB, "second")
    (child,) = (await stage.children(JOB)).values()
    assert child["metadata"]["ownerReferences"][0]["uid"] == uid_of(first)
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded", "first")
    assert len(stage.entrances("master")) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda sets: sets[1].update(replicas=3), "spec.replicaSpecs"),
        (lambda sets: sets[1]["template"]["spec"]["containers"][0].update(image="other"), "spec.replicaSpecs"),
        (lambda sets: sets.pop(), "spec.replicaSpecs"),
    ],
    ids=["replicas", "template", "a type less"],
)
async def test_an_edit_after_the_start_is_refused_and_says_what_to_do(
    stage: Stage, change: Callable[[list[Json]], object], said: str
) -> None:
    await stage.submit(tf_job())
    await stage.everybody()
    sets = (await stage.job())["spec"]["replicaSpecs"]
    change(sets)
    with pytest.raises(Invalid) as refused:
        await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"replicaSpecs": sets}})
    assert refused.value.code == 422 and said in refused.value.message
    assert "fixed once the job has started: suspend it and edit it then, or make a new job" in refused.value.message
    await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"cleanPodPolicy": "All"}})
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
    await stage.nothing_left()


class TestAnOlderServer:
    """Its definition of a TfJob has no schema and nobody checks: whatever is sent is stored."""

    @pytest.fixture
    def checks(self) -> Json:
        return {}

    @pytest.fixture(autouse=True)
    async def loose(self, stage: Stage) -> None:
        definition = await stage.api.get(CRD, "", name_of(kinds.crd(kinds.TFJOB)))
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        for version in definition["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"] = anything
        await stage.api.replace(CRD, "", name_of(definition), definition)

    @pytest.mark.parametrize(
        ("sets", "text"),
        [
            ([replicas("MASTER", 2)], "invalid job spec: The MASTER must have Replicas = 1"),
            (
                [replicas("MASTER"), replicas("CHIEF")],
                "invalid job spec: tfReplicaSpec.TfReplicaType is CHIEF but must be one of [MASTER PS WORKER]",
            ),
            (
                [replicas("MASTER", container=actor(name="other"))],
                "invalid job spec: Replica type MASTER is missing a container named tensorflow",
            ),
        ],
        ids=["two masters", "a wrong type", "no container named tensorflow"],
    )
    async def test_an_invalid_job_fails_with_the_old_text_and_nothing_of_it_is_made(
        self, stage: Stage, sets: list[Json], text: str
    ) -> None:
        operator, api = await stage.operator()
        await stage.submit(tf_job(*sets))
        failed = await stage.condition("Failed")
        assert failed["reason"] == "InvalidSpec" and failed["message"].startswith(text)
        job = await stage.job()
        assert (job["status"]["phase"], job["status"]["state"]) == ("Failed", "Failed")
        assert job["status"]["reason"] == failed["message"]
        await looked(operator)
        assert [one.method for one in api.writes] == ["PATCH"]

    async def test_an_edit_after_the_start_changes_nothing_and_is_said(self, stage: Stage) -> None:
        await stage.submit(tf_job())
        await stage.everybody_is_said()
        sets = (await stage.job())["spec"]["replicaSpecs"]
        sets[1]["replicas"] = 5
        await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"replicaSpecs": sets}})
        said = await stage.condition("SpecChangeIgnored")
        assert "WORKER has 2 replicas, the spec now says 5" in said["message"]
        operator, _ = await stage.operator()
        await looked(operator)
        assert len(await stage.children(JOB)) == 4
        sets[1]["replicas"] = 2
        await stage.api.patch(TFJOB, stage.namespace, "story", {"spec": {"replicaSpecs": sets}})
        await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "SpecChangeIgnored"))

    async def test_one_job_that_nobody_can_read_hurts_no_other(self, stage: Stage) -> None:
        for name, spec in (("a", "text"), ("b", []), ("c", {"replicaSpecs": {"MASTER": 1}}), ("d", None)):
            body = {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}
            await stage.api.create(TFJOB, stage.namespace, body)
        await stage.submit(tf_job())
        await stage.everybody()
        for name in "abcd":
            assert (await stage.condition("Failed", name))["reason"] == "InvalidSpec"


async def test_a_child_that_the_server_does_not_take_ends_the_job_with_the_servers_words(stage: Stage) -> None:
    operator, api = await stage.operator()
    mount = {"name": "not-there", "mountPath": "/data"}
    await stage.submit(tf_job(replicas("MASTER"), replicas("WORKER", container=actor(volumeMounts=[mount]))))
    failed = await stage.condition("Failed")
    assert failed["reason"] == "InvalidChild"
    assert "the API server refused Job worker-" in failed["message"] and "not-there" in failed["message"]
    assert (await stage.job())["status"]["state"] == "Failed"  # the phase says whether the master was faster
    await stage.happens(lambda: not stage.running())  # the master, which was taken, is stopped
    sent = len(api.writes)
    stage.later(3600)
    await looked(operator)
    assert len(api.writes) == sent


async def test_a_quota_is_said_and_tried_again_until_there_is_room(stage: Stage) -> None:
    text = 'jobs.batch "worker-own1-0" is forbidden: exceeded quota: compute, requested: count/jobs.batch=1, used: 2'
    full = True

    def quota(request: ApiRequest) -> None:
        if full and request.method == "POST" and b'"name":"worker-own1-' in (request.body or b""):
            raise Forbidden(403, "Forbidden", text)

    def limit(api: Noted) -> None:
        api.before = quota

    operator, api = await stage.operator(limit)
    await stage.submit(tf_job(**OWN))
    said = await stage.condition("Blocked")
    assert said["reason"] == "QuotaExceeded" and text in said["message"]
    await stage.happens(lambda: stage.running() == {"master": 1, "ps": 1})
    tries = len(api.writes)
    await looked(operator)  # not before its time
    assert not [one for one in api.writes[tries:] if one.method == "POST"]
    full = False
    stage.later(3600)
    await stage.everybody()
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "Blocked"))
    await (await stage.actor("master")).exit(0)
    await stage.condition("Succeeded")
