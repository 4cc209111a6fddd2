"""Specs that cannot be read, at creation and after an edit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.decision_values import every_kind, failed_condition
from tests.model.simulated_job import begun
from tests.support.builders import NOW, batch_job, look, started
from tests.support.samples import elasticjob, sample
from trainyard import kinds
from trainyard.core import Kind, Observed, plan, runtime_id_of
from trainyard.objects import Json, find_condition


def test_an_id_that_the_spec_has_lost_is_still_in_use() -> None:
    job = started()
    del job["spec"]["RuntimeId"]
    assert runtime_id_of(job) == "76no"


def test_another_runtime_id_after_the_start_changes_nothing_and_is_said() -> None:
    job = started()
    job["spec"]["RuntimeId"] = "zzzz"
    found = look(job, batch_job("MASTER"), batch_job("WORKER"))
    said = {one["type"]: one["message"] for one in found.status["conditions"]}
    assert not found.creates and "RuntimeId is zzzz now, and 76no names" in said["SpecChangeIgnored"]


@every_kind
@pytest.mark.parametrize("spec", [None, [], "text", 5, True])
def test_a_job_whose_spec_is_no_object_is_told_what_an_api_server_says(kind: Kind, spec: Any) -> None:
    job = {**sample(kind.gvk.kind), "spec": spec}
    found = plan(kind, job, Observed(), NOW)
    (problem,) = kinds.admit(kind, job)[1]
    assert failed_condition(found.status)["message"] == f"{problem.text} (spec)" and not found.creates


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
    assert failed_condition(life.settle())["reason"] == "ElasticJobFailed"


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
