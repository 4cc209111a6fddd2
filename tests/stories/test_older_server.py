"""What is stored although it is wrong: an older definition without a schema, and nobody who checks.

A job that has not started fails with the text that a newer server would have said; one that has started goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stories.harness import JOB, POD, STATEFUL_SET, Harness, looked
from tests.stories.job_fixtures import NEW, chainer_job, elastic_job, mx_job, mx_set, template, worker_set
from trainyard import kinds
from trainyard.objects import Json, is_condition_true, name_of
from trainyard.objects.resources import CRD, ROLE


@pytest.fixture
def checks() -> Json:
    return {}


@pytest.fixture(autouse=True)
async def loose(harness: Harness) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in kinds.ALL:
        definition = await harness.api.get(CRD, "", name_of(kinds.crd(kind)))
        for version in definition["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"] = anything
            version["subresources"].pop("scale", None)  # it has a rule of its own: a whole number at its place
        await harness.api.replace(CRD, "", name_of(definition), definition)


WRONG = {
    "no scheduler": (
        mx_job(mx_set("SERVER"), mx_set("WORKER")),
        "invalid job spec: dist job mode without replica type",
    ),
    "two schedulers": (
        mx_job(mx_set("SCHEDULER", 2), mx_set("SERVER"), mx_set("WORKER")),
        "The SCHEDULER must have Replicas = 1",
    ),
    "unknown mode": (mx_job(jobMode="ring"), "invalid job spec: unkonw job mode ring"),
    "unknown backend": (chainer_job(backend="gloo"), "backend"),
    "missing master": (chainer_job(master=None), "master"),
    "a set without workers": (chainer_job(sets={"ws": worker_set(0)}), "replicas"),
    "a hundred thousand": (chainer_job(sets={"ws": worker_set(100_000)}), "replicas"),
    "slots that do not parse": (chainer_job(sets={"ws": worker_set(mpiConfig={"slots": "many"})}), "slots"),
    "min above max": (elastic_job(minReplicas=5, maxReplicas=4), "minReplicas must not be above maxReplicas"),
    "too few": (elastic_job(1, minReplicas=2), "replicas must not be below minReplicas"),
    "no rendezvous": (elastic_job(rdzvEndpoint=None), "the workers need a rendezvous"),
    "sets of a wrong shape": (elastic_job(replicaSpecs=["Worker"]), "replicaSpecs"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("job", "text"), WRONG.values(), ids=WRONG)
async def test_an_invalid_job_fails_with_its_message_and_creates_no_children(
    harness: Harness, job: Json, text: str
) -> None:
    operator, api = await harness.operator()
    await harness.submit(job)
    failed = await harness.condition("Failed")
    assert failed["reason"] == "InvalidSpec" and text in failed["message"]
    await looked(operator)
    assert [write.method for write in api.writes] == ["PATCH"]


EDITS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "another worker": ("MxJob", lambda spec: {"replicaSpecs": [*spec["replicaSpecs"][:2], mx_set("WORKER", 3)]}),
    "another master": ("ChainerJob", lambda spec: {"master": {"template": template("chainer", hostname="other")}}),
    "another backend": ("ChainerJob", lambda spec: {"backend": "gloo"}),
    "no workers": ("ChainerJob", lambda spec: {"workerSets": {"ws": {"replicas": 0}}}),
    "above the bounds": ("ElasticJob", lambda spec: {"replicaSpecs": {"Worker": {"replicas": 9}}}),
    "need a rendezvous": ("ElasticJob", lambda spec: {"rdzvEndpoint": None}),
    "nothing": ("ElasticJob", lambda spec: {"replicaSpecs": None}),
    "nobody": ("ChainerJob", lambda spec: {"workerSets": {"ws": {"template": None}}}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "edit"), EDITS.values(), ids=EDITS)
async def test_a_forbidden_edit_of_a_running_job_has_no_effect_and_is_reported(
    harness: Harness, name: str, edit: Callable[[Json], Json]
) -> None:
    job_fixture = NEW[name]
    before = await job_fixture.begin(harness)
    children = {gvk: await harness.children(gvk) for gvk in (JOB, POD, STATEFUL_SET, ROLE)}
    await harness.edit(edit(before["spec"]))
    condition = await harness.condition("SpecChangeIgnored")
    assert condition["message"]
    operator, api = await harness.operator()
    await looked(operator)
    assert api.writes == [] and harness.running() == job_fixture.cast
    assert {gvk: await harness.children(gvk) for gvk in children} == children
    await harness.api.replace(
        harness.kind.gvk, harness.namespace, "story", (await harness.job()) | {"spec": before["spec"]}
    )
    await harness.until(lambda job: not is_condition_true(job["status"]["conditions"], "SpecChangeIgnored"))
    await job_fixture.succeed(harness)
    assert {controlled.place for controlled in harness.entered} == {
        f"{role}-{index}" for role, index in job_fixture.slots
    }
    assert len(harness.entered) == len(job_fixture.slots)
