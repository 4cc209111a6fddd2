"""Specs that cannot be read, at creation and after an edit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.decision_values import every_kind, failed_condition
from tests.model.simulated_job import simulate
from tests.support.builders import NOW, batch_job, look, started
from tests.support.samples import elasticjob, sample
from trainyard import kinds
from trainyard.core import Kind, Observed, plan, runtime_id_of
from trainyard.objects import Json, find_condition


def test_an_id_that_the_spec_has_lost_is_still_in_use() -> None:
    job = started()
    del job["spec"]["RuntimeId"]
    assert runtime_id_of(job) == "76no"


def test_an_edit_of_the_runtime_id_is_ignored_and_reported() -> None:
    job = started()
    job["spec"]["RuntimeId"] = "zzzz"
    planned = look(job, batch_job("MASTER"), batch_job("WORKER"))
    by_condition_type = {condition["type"]: condition["message"] for condition in planned.status["conditions"]}
    assert not planned.creates and "RuntimeId is zzzz now, and 76no names" in by_condition_type["SpecChangeIgnored"]


@every_kind
@pytest.mark.parametrize("spec", [None, [], "text", 5, True])
def test_a_job_whose_spec_is_no_object_fails_with_the_api_servers_message(kind: Kind, spec: Any) -> None:
    job = {**sample(kind.gvk.kind), "spec": spec}
    planned = plan(kind, job, Observed(), NOW)
    (problem,) = kinds.admit(kind, job)[1]
    assert failed_condition(planned.status)["message"] == f"{problem.text} (spec)" and not planned.creates


@every_kind
def test_a_running_job_whose_spec_was_removed_continues_with_a_condition(kind: Kind) -> None:
    simulated = simulate(kind, sample(kind.gvk.kind))
    simulated.run()
    simulated.settle()
    simulated.job = {**simulated.job, "spec": None}
    planned = simulated.look()
    assert not (planned.deletes or planned.patches or planned.creates)
    condition = find_condition(planned.status["conditions"], "SpecChangeIgnored") or {}
    assert condition["status"] == "True" and "Required value: write an object" in condition["message"]


@pytest.mark.parametrize("edit", [{"restartPolicy": "Sometimes"}, {"replicas": "two"}, {"restartPolicy": ["ExitCode"]}])
def test_a_bad_edit_of_an_elastic_job_does_not_make_a_retryable_end_a_permanent_one(edit: Json) -> None:
    simulated = simulate(kinds.ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    good = simulated.job["spec"]["replicaSpecs"]
    simulated.edit(replicaSpecs={"Worker": {**good["Worker"], **edit}})
    simulated.end("example-worker-0", 137)
    simulated.now += 60
    assert simulated.settle()["state"] != "Failed"
    simulated.edit(replicaSpecs=good)
    status = simulated.settle()
    assert "example-worker-0" in simulated.names("Pod") and status["restarts"] == 1
    simulated.edit(replicaSpecs={"Worker": {**good["Worker"], **edit}})
    simulated.end("example-worker-1", 1)
    assert failed_condition(simulated.settle())["reason"] == "ElasticJobFailed"


def test_a_bad_edit_makes_no_tensorboard() -> None:
    simulated = simulate(kinds.TFJOB, sample("TfJob"))
    before = simulated.names()
    simulated.edit(tensorboard={"logDir": "/a"}, tensorBoard={"logDir": "/b"})
    status = simulated.settle()
    assert (find_condition(status["conditions"], "SpecChangeIgnored") or {})["status"] == "True"
    assert simulated.names() == before
    simulated.edit(tensorBoard=None)
    simulated.settle()
    assert "Deployment" in {ref.kind for ref in simulated.objects}
