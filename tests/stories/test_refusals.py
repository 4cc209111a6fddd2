"""What the API server or another owner prevents: reported, neither forced nor forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stories.harness import JOB, SERVICE, TFJOB, Harness, Noted, controlled_container, looked, replicas, tf_job
from trainyard import kinds
from trainyard.client import ApiRequest, Forbidden, Invalid
from trainyard.objects import Json, find_condition, is_condition_true, name_of, uid_of
from trainyard.objects.resources import CRD

pytestmark = pytest.mark.slow

OWN = {"RuntimeId": "own1"}


async def test_a_foreign_service_with_a_childs_name_is_reported_and_the_job_continues_once_it_is_deleted(
    harness: Harness,
) -> None:
    meta = {"name": "tfjob-own1", "labels": {"of": "somebody"}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 80}]}}
    other = await harness.api.create(SERVICE, harness.namespace, body)
    operator, _ = await harness.operator()
    await harness.submit(tf_job(**OWN))
    condition = await harness.condition("NameConflict")
    assert 'Service "tfjob-own1" exists already and belongs to nobody' in condition["message"]
    await harness.every_replica_runs()  # everything else is made all the same
    harness.later(3600)
    await looked(operator)
    assert await harness.api.get(SERVICE, harness.namespace, "tfjob-own1") == other
    await harness.api.delete(SERVICE, harness.namespace, "tfjob-own1")
    harness.later(3600)
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "NameConflict"))
    ours = await harness.api.get(SERVICE, harness.namespace, "tfjob-own1")
    assert ours["metadata"]["ownerReferences"][0]["uid"] == uid_of(await harness.job())
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")


async def test_another_jobs_child_with_the_same_name_is_neither_adopted_nor_deleted(harness: Harness) -> None:
    """Two jobs with one preset RuntimeId: the second never touches what the first has."""
    first = await harness.submit(tf_job(replicas("MASTER"), name="first", **OWN))
    await harness.controlled_pod("master")
    await harness.submit(tf_job(replicas("MASTER"), name="second", cleanPodPolicy="All", **OWN))
    job = await harness.until(
        lambda job: is_condition_true(job.get("status", {}).get("conditions"), "NameConflict"), TFJOB, "second"
    )
    assert "belongs to TfJob first" in (find_condition(job["status"]["conditions"], "NameConflict") or {})["message"]
    await harness.api.delete(TFJOB, harness.namespace, "second")
    await harness.gone(TFJOB, "second")
    (child,) = (await harness.children(JOB)).values()
    assert child["metadata"]["ownerReferences"][0]["uid"] == uid_of(first)
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded", "first")
    assert len(harness.entrances("master")) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sets: sets[1].update(replicas=3), "spec.replicaSpecs"),
        (lambda sets: sets[1]["template"]["spec"]["containers"][0].update(image="other"), "spec.replicaSpecs"),
        (lambda sets: sets.pop(), "spec.replicaSpecs"),
    ],
    ids=["replicas", "template", "a type less"],
)
async def test_an_edit_after_the_start_is_refused_with_a_fix(
    harness: Harness, change: Callable[[list[Json]], object], message: str
) -> None:
    await harness.submit(tf_job())
    await harness.every_replica_runs()
    sets = (await harness.job())["spec"]["replicaSpecs"]
    change(sets)
    with pytest.raises(Invalid) as refused:
        await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"replicaSpecs": sets}})
    assert refused.value.code == 422 and message in refused.value.message
    assert "fixed once the job has started: suspend it and edit it then, or make a new job" in refused.value.message
    await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"cleanPodPolicy": "All"}})
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    await harness.nothing_left()


class TestAnOlderServer:
    """Its CRD of TfJob has no schema: every object is stored."""

    @pytest.fixture
    def checks(self) -> Json:
        return {}

    @pytest.fixture(autouse=True)
    async def loose(self, harness: Harness) -> None:
        definition = await harness.api.get(CRD, "", name_of(kinds.crd(kinds.TFJOB)))
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        for version in definition["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"] = anything
        await harness.api.replace(CRD, "", name_of(definition), definition)

    @pytest.mark.parametrize(
        ("sets", "text"),
        [
            ([replicas("MASTER", 2)], "invalid job spec: The MASTER must have Replicas = 1"),
            (
                [replicas("MASTER"), replicas("CHIEF")],
                "invalid job spec: tfReplicaSpec.TfReplicaType is CHIEF but must be one of [MASTER PS WORKER]",
            ),
            (
                [replicas("MASTER", container=controlled_container(name="other"))],
                "invalid job spec: Replica type MASTER is missing a container named tensorflow",
            ),
        ],
        ids=["two masters", "a wrong type", "no container named tensorflow"],
    )
    async def test_an_invalid_job_fails_with_the_old_message_and_creates_no_children(
        self, harness: Harness, sets: list[Json], text: str
    ) -> None:
        operator, api = await harness.operator()
        await harness.submit(tf_job(*sets))
        failed = await harness.condition("Failed")
        assert failed["reason"] == "InvalidSpec" and failed["message"].startswith(text)
        job = await harness.job()
        assert (job["status"]["phase"], job["status"]["state"]) == ("Failed", "Failed")
        assert job["status"]["reason"] == failed["message"]
        await looked(operator)
        assert [write.method for write in api.writes] == ["PATCH"]

    async def test_an_edit_after_the_start_has_no_effect_and_is_reported(self, harness: Harness) -> None:
        await harness.submit(tf_job())
        await harness.status_counts_every_replica()
        sets = (await harness.job())["spec"]["replicaSpecs"]
        sets[1]["replicas"] = 5
        await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"replicaSpecs": sets}})
        condition = await harness.condition("SpecChangeIgnored")
        assert "WORKER has 2 replicas, the spec now says 5" in condition["message"]
        operator, _ = await harness.operator()
        await looked(operator)
        assert len(await harness.children(JOB)) == 4
        sets[1]["replicas"] = 2
        await harness.api.patch(TFJOB, harness.namespace, "story", {"spec": {"replicaSpecs": sets}})
        await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "SpecChangeIgnored"))

    async def test_a_job_that_cannot_be_decoded_affects_no_other(self, harness: Harness) -> None:
        for name, spec in (("a", "text"), ("b", []), ("c", {"replicaSpecs": {"MASTER": 1}}), ("d", None)):
            body: Json = {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}
            await harness.api.create(TFJOB, harness.namespace, body)
        await harness.submit(tf_job())
        await harness.every_replica_runs()
        for name in "abcd":
            assert (await harness.condition("Failed", name))["reason"] == "InvalidSpec"


async def test_a_child_that_the_server_refuses_as_invalid_fails_the_job_with_the_servers_message(
    harness: Harness,
) -> None:
    operator, api = await harness.operator()
    mount = {"name": "not-there", "mountPath": "/data"}
    await harness.submit(
        tf_job(replicas("MASTER"), replicas("WORKER", container=controlled_container(volumeMounts=[mount])))
    )
    failed = await harness.condition("Failed")
    assert failed["reason"] == "InvalidChild"
    assert "the API server refused Job worker-" in failed["message"] and "not-there" in failed["message"]
    assert (await harness.job())["status"]["state"] == "Failed"  # the phase says whether the master was faster
    await harness.until_holds(lambda: not harness.running())  # the master, which was taken, is stopped
    sent = len(api.writes)
    harness.later(3600)
    await looked(operator)
    assert len(api.writes) == sent


async def test_an_exceeded_quota_is_reported_and_the_create_retried_until_it_fits(harness: Harness) -> None:
    text = 'jobs.batch "worker-own1-0" is forbidden: exceeded quota: compute, requested: count/jobs.batch=1, used: 2'
    full = True

    def quota(request: ApiRequest) -> None:
        if full and request.method == "POST" and b'"name":"worker-own1-' in (request.body or b""):
            raise Forbidden(403, "Forbidden", text)

    def limit(api: Noted) -> None:
        api.before = quota

    operator, api = await harness.operator(limit)
    await harness.submit(tf_job(**OWN))
    condition = await harness.condition("Blocked")
    assert condition["reason"] == "QuotaExceeded" and text in condition["message"]
    await harness.until_holds(lambda: harness.running() == {"master": 1, "ps": 1})
    tries = len(api.writes)
    await looked(operator)  # not before its time
    assert not [write for write in api.writes[tries:] if write.method == "POST"]
    full = False
    harness.later(3600)
    await harness.every_replica_runs()
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "Blocked"))
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
