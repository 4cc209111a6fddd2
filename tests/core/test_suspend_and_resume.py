"""Suspend and resume: what is stopped, what is kept, and what is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.decision_values import (
    attempts_of,
    begun_job,
    beside_a_sidecar,
    blocked_elastic_job,
    blocked_job,
    ended_pod,
    ended_pod_of,
    every_kind,
    plan_for,
    small_gang,
    stopping_pod,
    with_status,
)
from tests.model.scenarios import chainer, elastic
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.builders import NOW, batch_job, look, pod_of, replicas, started, tfjob
from tests.support.samples import (
    KUBEFLOW_ROLES,
    chainerjob,
    elasticjob,
    kubeflow_job,
    mx_set,
    mxjob,
    pods,
    sample,
    worker_set,
)
from trainyard.core import Kind, Plan, Refusal
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MXJOB
from trainyard.objects import Ref, find_condition

WORDS = "spec.containers[0].image: Required value"


def blocked_chainer_job(refusal: Refusal) -> SimulatedJob:
    return blocked_job(CHAINERJOB, chainerjob(), refusal, workerSets={"ws0": worker_set(2), "more": worker_set(1)})


def failure_count(plan: Plan) -> int:
    return sum(role["failures"] for role in plan.status["roles"].values())


EDITED = {
    "TfJob": tfjob(replicas("MASTER"), replicas("WORKER", 3)),
    "MxJob": mxjob(mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", 1)),
    "ChainerJob": chainerjob({"ws0": worker_set(1)}, master={"template": pods("chainer", nodeSelector={"a": "b"})}),
    "ElasticJob": elasticjob(1),
    **{kind: kubeflow_job(kind) for kind in KUBEFLOW_ROLES},
}


def is_alive(simulated: SimulatedJob, pod: str) -> bool:
    return simulated.get("Pod", pod)["status"]["phase"] in ("Pending", "Running")


@pytest.mark.parametrize("start", [blocked_elastic_job, blocked_chainer_job], ids=lambda starter: starter.__name__)
def test_suspending_a_job_with_an_invalid_edit_does_not_fail_it(start: Callable[[Refusal], SimulatedJob]) -> None:
    """This is the advice that conditions give; no child is created while the job is suspended."""
    simulated = start(Refusal(422, "Invalid", WORDS, NOW))
    simulated.edit(suspend=True)
    planned = simulated.look()
    by_condition_type = {condition["type"]: condition["status"] for condition in planned.status["conditions"]}
    assert by_condition_type["Suspended"] == "True" and by_condition_type.get("Failed") is None


def test_a_suspended_job_is_not_called_blocked() -> None:
    simulated = blocked_elastic_job(Refusal(403, "Forbidden", "exceeded quota", NOW))
    simulated.edit(suspend=True)
    status = simulated.settle()
    assert (find_condition(status["conditions"], "Blocked") or {})["status"] == "False"
    assert Ref("Pod", "example-worker-1") in simulated.refused


def test_a_worker_that_answers_to_the_suspend_with_0_does_not_end_the_job() -> None:
    simulated = simulate(ELASTICJOB, elasticjob(1))
    simulated.run()
    simulated.settle()
    simulated.edit(suspend=True)
    assert [delete.name for delete in simulated.look().deletes] == ["example-worker-0"]
    simulated.job["status"] = simulated.look().status
    simulated.end("example-worker-0", 0)
    stopping_pod(simulated, "Pod", "example-worker-0")
    assert simulated.settle()["state"] == "Suspended"
    simulated.drop(simulated.get("Pod", "example-worker-0")["metadata"]["uid"])
    simulated.edit(suspend=False)
    assert [create.slot for create in simulated.step().creates] != []


def test_no_sidecar_runs_on_while_the_job_is_suspended() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = beside_a_sidecar(pod_of(worker, "Running", code=0))
    planned = look(started(suspend=True), master, worker, pod_of(master), pod)
    assert [delete.name for delete in planned.deletes] == ["master-76no-0", "worker-76no-0"]


def test_a_job_whose_spec_became_invalid_while_suspended_stays_suspended_with_a_condition() -> None:
    job = started()
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    suspended["status"] = look(suspended).status
    resumed = {**suspended, "spec": {**job["spec"], "replicaSpecs": [replicas("WORKER")]}}
    planned = look(resumed)
    while_suspended = {condition["type"]: condition for condition in planned.status["conditions"]}
    assert not planned.creates and while_suspended["Suspended"]["status"] == "True"
    assert "1 and only 1 master" in while_suspended["SpecChangeIgnored"]["message"]
    mended = look({**resumed, "spec": job["spec"], "status": planned.status})
    while_suspended = {condition["type"]: condition["status"] for condition in mended.status["conditions"]}
    assert (while_suspended["Suspended"], while_suspended["SpecChangeIgnored"]) == ("False", "False")
    assert [(create.name, create.attempt) for create in mended.creates] == [("master-76no-0", 1), ("worker-76no-0", 1)]


def test_a_suspension_keeps_a_succeeded_replica_whose_job_status_lags() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(suspend=True), master, worker, pod_of(master), pod_of(worker, "Succeeded", code=0))
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"]


def test_a_failure_of_a_gang_is_not_counted_again_when_the_job_is_resumed() -> None:
    job, jobs, rest = small_gang()
    failed = ended_pod_of(jobs[0], 137, "mxnet")
    suspended = plan_for(MXJOB, with_status(job, Plan(job["status"]), suspend=True), *jobs, *rest, failed)
    assert failure_count(suspended) == 1
    resumed = plan_for(MXJOB, with_status(job, suspended, suspend=False), jobs[0], *rest, failed)
    assert attempts_of(resumed) == {1}
    assert failure_count(resumed) == 1


def test_a_gang_failure_observed_after_the_resumption_counts() -> None:
    job, jobs, rest = small_gang()
    unseen = plan_for(MXJOB, with_status(job, Plan(job["status"]), suspend=True), *rest)
    resumed = plan_for(MXJOB, with_status(job, unseen, suspend=False), *rest)
    planned = plan_for(
        MXJOB, with_status(job, resumed, suspend=False), *jobs, *rest, ended_pod_of(jobs[0], 137, "mxnet")
    )
    assert failure_count(planned) == 1
    assert {delete.name for delete in planned.deletes} == {child["metadata"]["name"] for child in jobs}


def test_a_failed_worker_observed_after_the_resumption_is_counted_before_it_is_deleted() -> None:
    job, children = begun_job(ELASTICJOB, elastic(1).spec)
    pod, service = children["Pod small-worker-0"], children["Service small-worker-0"]
    unseen = plan_for(ELASTICJOB, with_status(job, Plan(job["status"]), suspend=True), service)
    resumed = plan_for(ELASTICJOB, with_status(job, unseen, suspend=False), service)
    planned = plan_for(
        ELASTICJOB, with_status(job, resumed, suspend=False), service, ended_pod(pod, 1, "elasticjob-worker")
    )
    assert failure_count(planned) == 1
    assert [delete.name for delete in planned.deletes] == ["small-worker-0"]


def test_a_suspension_keeps_a_succeeded_master_whose_job_status_lags() -> None:
    job, children = begun_job(CHAINERJOB, chainer(1).spec)
    pod = ended_pod_of(children["Job small-master"], 0, "chainer")
    planned = plan_for(CHAINERJOB, with_status(job, Plan(job["status"]), suspend=True), *children.values(), pod)
    assert planned.deletes == ()
    assert planned.status["state"] == "Succeeded"


@every_kind
def test_a_job_that_is_suspended_and_edited_in_one_update_stops_and_is_resumed_as_edited(kind: Kind) -> None:
    """This is how Kueue evicts a job: nothing of the edit is ignored, and no condition reports it."""
    simulated = simulate(kind, sample(kind.gvk.kind))
    simulated.run()
    simulated.settle()
    edited = {key: value for key, value in EDITED[kind.gvk.kind]["spec"].items() if key != "RuntimeId"}
    simulated.edit(**edited, suspend=True)
    condition_types = {
        condition["type"] for condition in simulated.step().status["conditions"] if condition["status"] == "True"
    }
    assert "Suspended" in condition_types and "SpecChangeIgnored" not in condition_types
    status = simulated.settle()
    assert find_condition(status["conditions"], "SpecChangeIgnored") is None
    assert not any(is_alive(simulated, name) for name in simulated.names("Pod"))
    simulated.edit(suspend=False)
    status = simulated.settle()
    fresh = simulate(kind, {**EDITED[kind.gvk.kind], "spec": {**simulated.job["spec"]}})
    assert sorted(simulated.names()) == sorted(fresh.names())
    assert status["resumes"] == 1 and not status["restarts"]
