"""What is stored although it is wrong: an older definition without a schema, and nobody who checks.

A job that has not started fails with the text that a newer server would have said; one that has started goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stories.harness import JOB, POD, STATEFUL_SET, Stage, looked
from tests.stories.job_fixtures import NEW, chainer_job, elastic_job, mx_job, mx_set, template, worker_set
from trainyard import kinds
from trainyard.objects import Json, is_condition_true, name_of
from trainyard.objects.resources import CRD, ROLE


@pytest.fixture
def checks() -> Json:
    return {}


@pytest.fixture(autouse=True)
async def loose(stage: Stage) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in kinds.ALL:
        definition = await stage.api.get(CRD, "", name_of(kinds.crd(kind)))
        for version in definition["spec"]["versions"]:
            version["schema"]["openAPIV3Schema"] = anything
            version["subresources"].pop("scale", None)  # it has a rule of its own: a whole number at its place
        await stage.api.replace(CRD, "", name_of(definition), definition)


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
    "no rendezvous": (elastic_job(rdzvEndpoint=None), "the nodes have nowhere to meet"),
    "sets of a wrong shape": (elastic_job(replicaSpecs=["Worker"]), "replicaSpecs"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("job", "text"), WRONG.values(), ids=WRONG)
async def test_an_invalid_job_fails_with_its_text_and_nothing_of_it_is_made(stage: Stage, job: Json, text: str) -> None:
    operator, api = await stage.operator()
    await stage.submit(job)
    failed = await stage.condition("Failed")
    assert failed["reason"] == "InvalidSpec" and text in failed["message"]
    await looked(operator)
    assert [one.method for one in api.writes] == ["PATCH"]


EDITS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "another worker": ("MxJob", lambda spec: {"replicaSpecs": [*spec["replicaSpecs"][:2], mx_set("WORKER", 3)]}),
    "another master": ("ChainerJob", lambda spec: {"master": {"template": template("chainer", hostname="other")}}),
    "another backend": ("ChainerJob", lambda spec: {"backend": "gloo"}),
    "no workers": ("ChainerJob", lambda spec: {"workerSets": {"ws": {"replicas": 0}}}),
    "above the bounds": ("ElasticJob", lambda spec: {"replicaSpecs": {"Worker": {"replicas": 9}}}),
    "nowhere to meet": ("ElasticJob", lambda spec: {"rdzvEndpoint": None}),
    "nothing": ("ElasticJob", lambda spec: {"replicaSpecs": None}),
    "nobody": ("ChainerJob", lambda spec: {"workerSets": {"ws": {"template": None}}}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "edit"), EDITS.values(), ids=EDITS)
async def test_a_forbidden_edit_of_a_running_job_changes_nothing_and_is_said(
    stage: Stage, name: str, edit: Callable[[Json], Json]
) -> None:
    play = NEW[name]
    before = await play.begin(stage)
    children = {gvk: await stage.children(gvk) for gvk in (JOB, POD, STATEFUL_SET, ROLE)}
    await stage.edit(edit(before["spec"]))
    said = await stage.condition("SpecChangeIgnored")
    assert said["message"]
    operator, api = await stage.operator()
    await looked(operator)
    assert api.writes == [] and stage.running() == play.cast
    assert {gvk: await stage.children(gvk) for gvk in children} == children
    await stage.api.replace(stage.kind.gvk, stage.namespace, "story", (await stage.job()) | {"spec": before["spec"]})
    await stage.until(lambda job: not is_condition_true(job["status"]["conditions"], "SpecChangeIgnored"))
    await play.succeed(stage)
    assert {one.place for one in stage.entered} == {f"{role}-{index}" for role, index in play.slots}
    assert len(stage.entered) == len(play.slots)
