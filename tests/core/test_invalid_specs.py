"""Specs that cannot be read, at creation and after an edit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.decision_values import every_kind, failed_condition
from tests.model.simulated_job import simulate
from tests.support.builders import NOW, batch_job, look, replicas, started, tfjob
from tests.support.samples import elasticjob, kubeflow_job, sample
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


MANY = 9000
JOBS_OF_LONG_VARIABLES: dict[str, tuple[Kind, Json, str]] = {
    "TFJob of kubeflow.org": (kinds.KUBEFLOW_TFJOB, kubeflow_job("TFJob", Worker=MANY), "TF_CONFIG"),
    "XGBoostJob": (kinds.XGBOOSTJOB, kubeflow_job("XGBoostJob", Master=1, Worker=MANY), "WORKER_ADDRS"),
    "TfJob": (kinds.TFJOB, tfjob(replicas("MASTER"), replicas("WORKER", MANY)), "TF_CONFIG"),
}


@pytest.mark.parametrize(("kind", "job", "variable"), JOBS_OF_LONG_VARIABLES.values(), ids=JOBS_OF_LONG_VARIABLES)
def test_a_job_whose_pods_linux_could_not_start_fails_with_the_variable_and_makes_none(
    kind: Kind, job: Json, variable: str
) -> None:
    planned = plan(kind, job, Observed(), NOW)
    message = str(failed_condition(planned.status)["message"])
    assert f"the variable {variable} would have " in message and "more than 131072" in message
    assert "write fewer replicas, or shorter names (spec." in message
    assert not planned.creates
    assert len([event for event in planned.events if message in event.message]) == 1


def test_a_running_job_that_is_scaled_so_far_that_its_new_pods_could_not_start_goes_on_as_it_was() -> None:
    simulated = simulate(kinds.KUBEFLOW_TFJOB, kubeflow_job("TFJob", Worker=2))
    simulated.run()
    before = simulated.names()
    simulated.edit(tfReplicaSpecs=kubeflow_job("TFJob", Worker=MANY)["spec"]["tfReplicaSpecs"])
    condition = find_condition(simulated.settle()["conditions"], "SpecChangeIgnored") or {}
    assert condition["status"] == "True" and "the variable TF_CONFIG would have" in condition["message"]
    assert simulated.names() == before
