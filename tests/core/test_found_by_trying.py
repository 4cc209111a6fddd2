"""Faults that trying real inputs against the documents found, each as the small case that shows it."""

from __future__ import annotations

import pytest

from tests.support.builders import NOW, batch_job, look, pod_of, replicas, started, template, tfjob
from trainyard.core import Observed, Refusal, decode_child, plan, runtime_id_of
from trainyard.kinds import TFJOB
from trainyard.objects import Json, Ref

STOPPED: list[tuple[Json, int]] = [({"cleanPodPolicy": "Running"}, 1), ({"backoffLimit": 0}, 137)]


@pytest.mark.parametrize(("policies", "code"), STOPPED, ids=["cleanPodPolicy Running", "backoffLimit"])
def test_a_failed_master_keeps_its_pod_although_its_job_does_not_say_failed_yet(policies: Json, code: int) -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(**policies), master, worker, pod_of(master, "Failed", code=code), pod_of(worker))
    assert found.status["state"] == "Failed"
    assert [one.name for one in found.deletes] == ["worker-76no-0"]


def beside_a_sidecar(pod: Json) -> Json:
    pod["status"]["containerStatuses"].append({"name": "sidecar", "state": {"running": {}}})
    return pod


def test_a_master_whose_sidecar_still_runs_is_stopped_when_only_what_has_ended_may_stay() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER", complete=True)
    pod = beside_a_sidecar(pod_of(master, "Running", code=0))
    found = look(started(cleanPodPolicy="Running"), master, worker, pod)
    assert found.status["state"] == "Succeeded"
    assert [one.name for one in found.deletes] == ["master-76no-0"]


def test_no_sidecar_runs_on_while_the_job_is_suspended() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = beside_a_sidecar(pod_of(worker, "Running", code=0))
    found = look(started(suspend=True), master, worker, pod_of(master), pod)
    assert [one.name for one in found.deletes] == ["master-76no-0", "worker-76no-0"]


def test_the_replicas_are_told_in_the_order_of_the_spec_whatever_the_order_of_the_status() -> None:
    job = started(replicas("MASTER"), replicas("WORKER"), replicas("PS"))
    job["status"]["roles"] = dict(sorted(job["status"]["roles"].items()))
    told = [one["tf_replica_type"] for one in look(job).status["replicaStatuses"]]
    assert told == ["MASTER", "WORKER", "PS"]


def test_what_the_end_of_the_job_stops_is_not_told_as_running_for_ever() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(activeDeadlineSeconds=60), master, worker, pod_of(master), pod_of(worker))
    assert found.status["state"] == "Failed" and len(found.deletes) == 2
    assert [one["ReplicasStates"] for one in found.status["replicaStatuses"]] == [{"Unknown": 1}, {"Unknown": 1}]


def test_what_stays_after_the_end_is_told_as_running() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    found = look(started(), master, worker, pod_of(master, "Succeeded", code=0), pod_of(worker))
    assert [one["state"] for one in found.status["replicaStatuses"]] == ["Succeeded", "Running"]


def test_a_spec_that_was_broken_while_suspended_keeps_the_job_suspended_and_says_so() -> None:
    job = started()
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    suspended["status"] = look(suspended).status
    resumed = {**suspended, "spec": {**job["spec"], "replicaSpecs": [replicas("WORKER")]}}
    found = look(resumed)
    said = {one["type"]: one for one in found.status["conditions"]}
    assert not found.creates and said["Suspended"]["status"] == "True"
    assert "1 and only 1 master" in said["SpecChangeIgnored"]["message"]
    mended = look({**resumed, "spec": job["spec"], "status": found.status})
    said = {one["type"]: one["status"] for one in mended.status["conditions"]}
    assert (said["Suspended"], said["SpecChangeIgnored"]) == ("False", "False")
    assert [(one.name, one.attempt) for one in mended.creates] == [("master-76no-0", 1), ("worker-76no-0", 1)]


def test_a_drain_is_called_by_its_name() -> None:
    master = batch_job("MASTER")
    drained = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    found = look(started(), master, pod_of(master, "Failed", code=143, conditions=drained))
    said = {one["type"]: one["message"] for one in found.status["conditions"]}
    assert said["Restarting"] == "MASTER 0 ended: EvictionByEvictionAPI; disrupted, tried again"


def test_what_exceeded_the_limit_is_named() -> None:
    job = started(replicas("MASTER"), replicas("WORKER", 2), replicas("PS", template=template()), backoffLimit=2)
    master, one, other = batch_job("MASTER"), batch_job("WORKER"), batch_job("WORKER", 1)
    pods = pod_of(master), pod_of(one, restarts=2), pod_of(other, "Failed", code=9)
    found = look(job, master, one, other, *pods, batch_job("PS"))
    assert found.status["reason"] == (
        "3 failed attempts, backoffLimit is 2; WORKER 0 was restarted 2 times; a pod of WORKER 1 failed: see its logs"
    )


def test_the_exit_code_behind_a_restart_in_place_is_told() -> None:
    job = started(replicas("MASTER"), replicas("WORKER"), backoffLimit=0)
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, restarts=1)
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 9, "reason": "Error"}}
    said = look(job, master, worker, pod_of(master), pod).status["reason"]
    assert said.endswith("WORKER 0 was restarted 1 times: container tensorflow exited with code 9")


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


@pytest.mark.parametrize(("ran", "phase"), [(False, "Failed"), (True, "Done")])
def test_a_child_that_is_refused_fails_the_setup_or_a_job_that_ran(ran: bool, phase: str) -> None:
    job = started()
    worker = batch_job("WORKER")
    if ran:
        job["status"] = look(job, batch_job("MASTER"), worker, pod_of(worker)).status
    refused = {Ref("Job", "master-76no-0"): Refusal(422, "Invalid", "no such priority class", NOW)}
    found = plan(TFJOB, job, Observed((decode_child(worker),), refused=refused), NOW)
    assert (found.status["phase"], found.status["state"]) == (phase, "Failed")
    assert "no such priority class" in found.status["reason"]


def test_a_deletion_time_of_null_is_none() -> None:
    job = tfjob()
    job["metadata"]["deletionTimestamp"] = None
    assert look(job).creates
