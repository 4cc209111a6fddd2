"""What a real API server taught us about the decision."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.simulated_job import Life, begun
from tests.support.builders import NOW, replicas, tfjob
from tests.support.samples import chainerjob, elasticjob, mx_set, mxjob, pods, sample, worker_set
from trainyard import kinds
from trainyard.core import Kind, Observed, Refusal, plan
from trainyard.objects import Json, Ref, find_condition
from trainyard.objects.labels import ATTEMPT

every_kind = pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.gvk.kind)
UNREADABLE = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'


def failed(status: Json) -> Json:
    found = find_condition(status["conditions"], "Failed")
    assert found is not None and found["status"] == "True", status
    return found


@every_kind
@pytest.mark.parametrize("spec", [None, [], "text", 5, True])
def test_a_job_whose_spec_is_no_object_is_told_what_an_api_server_says(kind: Kind, spec: Any) -> None:
    job = {**sample(kind.gvk.kind), "spec": spec}
    found = plan(kind, job, Observed(), NOW)
    (problem,) = kinds.admit(kind, job)[1]
    assert failed(found.status)["message"] == f"{problem.text} (spec)" and not found.creates


@every_kind
def test_a_job_that_has_lost_its_spec_goes_on_and_says_so(kind: Kind) -> None:
    life = begun(kind, sample(kind.gvk.kind))
    life.run()
    life.settle()
    life.job = {**life.job, "spec": None}
    found = life.look()
    assert not (found.deletes or found.patches or found.creates)
    said = find_condition(found.status["conditions"], "SpecChangeIgnored") or {}
    assert said["status"] == "True" and "Required value: write an object" in said["message"]


@every_kind
def test_a_child_that_the_server_cannot_even_read_ends_the_job_in_its_words(kind: Kind) -> None:
    """A quantity, a number for a text: the answer is 400 BadRequest, today and for ever."""
    life = Life(kind, sample(kind.gvk.kind))
    child = next(create for create in life.look().creates if create.slot is not None)
    refusal = Refusal(400, "BadRequest", UNREADABLE, NOW)
    found = plan(kind, life.job, Observed(refused={Ref(child.gvk.kind, child.name): refusal}), NOW)
    said = failed(found.status)
    assert said["reason"] == "InvalidChild" and UNREADABLE in said["message"]


@pytest.mark.parametrize("edit", [{"restartPolicy": "Sometimes"}, {"replicas": "two"}, {"restartPolicy": ["ExitCode"]}])
def test_a_bad_edit_of_an_elastic_job_does_not_make_a_retryable_end_a_permanent_one(edit: Json) -> None:
    life = begun(kinds.ELASTICJOB, elasticjob(2))
    life.run()
    life.settle()
    good = life.job["spec"]["replicaSpecs"]
    life.edit(replicaSpecs={"Worker": {**good["Worker"], **edit}})
    life.end("example-worker-0", 137)
    life.now += 60
    assert life.settle()["state"] != "Failed"
    life.edit(replicaSpecs=good)
    status = life.settle()
    assert "example-worker-0" in life.names("Pod") and status["restarts"] == 1
    life.edit(replicaSpecs={"Worker": {**good["Worker"], **edit}})
    life.end("example-worker-1", 1)
    assert failed(life.settle())["reason"] == "ElasticJobFailed"


def attempts(life: Life) -> set[str]:
    return {life.get("Job", name)["metadata"]["labels"][ATTEMPT] for name in life.names("Job")}


def test_a_gang_that_loses_a_job_by_hand_is_made_again_whole_and_nothing_is_counted() -> None:
    """MXNet does not take a lost replica back (S33)."""
    life = begun(kinds.MXJOB, mxjob())
    life.run()
    life.settle()
    life.objects.pop(Ref("Job", "example-worker-1kkf-1"))  # its pod is about to follow
    said = find_condition(life.step().status["conditions"], "Restarting") or {}
    assert said["status"] == "True" and "WORKER 1 has lost its Job" in said["message"]
    life.objects = {ref: one for ref, one in life.objects.items() if ref.name != orphan(life)}
    status = life.settle()
    assert attempts(life) == {"1"} and len(life.names("Job")) == 4 and not status["restarts"]


def orphan(life: Life) -> str:
    """The pod that has no Job any more."""
    (found,) = [name for name in life.names("Pod") if name.startswith("example-worker-1kkf-1-")]
    return found


def test_a_tf_job_that_loses_a_job_by_hand_makes_that_one_again_alone() -> None:
    life = begun(kinds.TFJOB, sample("TfJob"))
    life.run()
    life.settle()
    life.lose("Job", "worker-76no-0")
    life.settle()
    assert attempts(life) == {"0"} and "worker-76no-0" in life.names("Job")


def test_a_gang_job_without_a_pod_is_made_again_alone() -> None:
    """Nothing tells that it was there before: it may as well be the first one, which a quota has held back."""
    life = begun(kinds.MXJOB, mxjob())
    life.objects.pop(Ref("Job", "example-worker-1kkf-1"))
    life.settle()
    assert attempts(life) == {"0"} and len(life.names("Job")) == 4


EDITED = {
    "TfJob": tfjob(replicas("MASTER"), replicas("WORKER", 3)),
    "MxJob": mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", 1)),
    "ChainerJob": chainerjob({"ws0": worker_set(1)}, master={"template": pods("chainer", nodeSelector={"a": "b"})}),
    "ElasticJob": elasticjob(1),
}


@every_kind
def test_a_job_that_is_suspended_and_edited_in_one_update_stops_and_is_resumed_as_edited(kind: Kind) -> None:
    """So does Kueue take a job back: nothing of the edit is ignored, and nothing is said of it."""
    life = begun(kind, sample(kind.gvk.kind))
    life.run()
    life.settle()
    edited = {key: value for key, value in EDITED[kind.gvk.kind]["spec"].items() if key != "RuntimeId"}
    life.edit(**edited, suspend=True)
    said = {one["type"] for one in life.step().status["conditions"] if one["status"] == "True"}
    assert "Suspended" in said and "SpecChangeIgnored" not in said
    status = life.settle()
    assert find_condition(status["conditions"], "SpecChangeIgnored") is None
    assert not any(lives(life, name) for name in life.names("Pod"))
    life.edit(suspend=False)
    status = life.settle()
    fresh = begun(kind, {**EDITED[kind.gvk.kind], "spec": {**life.job["spec"]}})
    assert sorted(life.names()) == sorted(fresh.names())
    assert status["resumes"] == 1 and not status["restarts"]


def lives(life: Life, pod: str) -> bool:
    return life.get("Pod", pod)["status"]["phase"] in ("Pending", "Running")


def test_a_bad_edit_makes_no_tensorboard() -> None:
    life = begun(kinds.TFJOB, sample("TfJob"))
    before = life.names()
    life.edit(tensorboard={"logDir": "/a"}, tensorBoard={"logDir": "/b"})
    status = life.settle()
    assert (find_condition(status["conditions"], "SpecChangeIgnored") or {})["status"] == "True"
    assert life.names() == before
    life.edit(tensorBoard=None)
    life.settle()
    assert "Deployment" in {ref.kind for ref in life.objects}
