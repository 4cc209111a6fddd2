"""Faults that the enumeration found in gangs, elastic jobs and Chainer jobs, each as the small case that shows it."""

from __future__ import annotations

from typing import Any

from tests.model.scenarios import chainer, elastic, gang, pod_template
from tests.support.builders import NOW, UID
from trainyard.core import Kind, Observed, Plan, decode_child, plan, render_object
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MXJOB
from trainyard.objects import Json, format_time


def begun(kind: Kind, spec: Json) -> tuple[Json, dict[str, Json]]:
    """A job after its first passes, and everything that was made for it, by name."""
    meta = {"name": "small", "namespace": "d", "uid": UID}
    job: Json = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": meta, "spec": spec}
    first = plan(kind, job, Observed(), NOW - 60)
    job = {**job, "spec": {**spec, **(first.spec_patch or {})}}
    after = plan(kind, job, Observed(), NOW - 60)
    job = {**job, "status": after.status}
    config = Observed().config
    made = {f"{one.gvk.kind} {one.name}": render_object(kind, job, one, config) for one in after.creates}
    for name, obj in made.items():
        obj["metadata"] |= {"uid": f"uid of {name}", "creationTimestamp": format_time(NOW - 60)}
    return job, made


def look(kind: Kind, job: Json, *children: Json, now: float = NOW) -> Plan:
    return plan(kind, job, Observed(tuple(map(decode_child, children))), now)


def with_status(job: Json, found: Plan, **spec: Any) -> Json:
    return {**job, "spec": {**job["spec"], **spec}, "status": found.status}


def ended(pod: Json, code: int, container: str, at: float = NOW - 1, **status: Any) -> Json:
    """A pod whose container has exited."""
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": format_time(at)}
    statuses = [{"name": container, "state": {"terminated": end}}]
    phase = "Failed" if code else "Succeeded"
    start = format_time(NOW - 50)
    return {**pod, "status": {"phase": phase, "startTime": start, "containerStatuses": statuses, **status}}


def pod_of(job: Json, code: int, container: str, **status: Any) -> Json:
    """The pod of a batch Job, whose container has exited."""
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    pod = {**meta, "name": f"{meta['name']}-x", "uid": f"pod of {meta['uid']}", "ownerReferences": [owner]}
    return ended({"apiVersion": "v1", "kind": "Pod", "metadata": pod}, code, container, **status)


def small_gang() -> tuple[Json, list[Json], list[Json]]:
    """A gang, its Jobs (SCHEDULER, SERVER, WORKER) and its other children."""
    job, made = begun(MXJOB, gang().spec)
    return job, [one for name, one in made.items() if name.startswith("Job ")], [made[f"Service {_subdomain(job)}"]]


def _subdomain(job: Json) -> str:
    return f"mxjob-{job['spec']['RuntimeId']}"


def failures(found: Plan) -> int:
    return sum(role["failures"] for role in found.status["roles"].values())


def attempts(found: Plan) -> set[int]:
    return {role["attempt"] for role in found.status["roles"].values()}


def test_a_failure_of_a_gang_is_not_counted_again_when_the_job_is_resumed() -> None:
    job, jobs, rest = small_gang()
    failed = pod_of(jobs[0], 137, "mxnet")
    suspended = look(MXJOB, with_status(job, Plan(job["status"]), suspend=True), *jobs, *rest, failed)
    assert failures(suspended) == 1
    resumed = look(MXJOB, with_status(job, suspended, suspend=False), jobs[0], *rest, failed)
    assert attempts(resumed) == {1}
    assert failures(resumed) == 1


def test_a_drain_does_not_shorten_the_back_off_of_a_gang() -> None:
    job, jobs, rest = small_gang()
    drained = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
    pods = [pod_of(jobs[0], 137, "mxnet"), pod_of(jobs[1], 143, "mxnet", **drained)]
    found = look(MXJOB, job, *jobs, *rest, *pods)
    assert attempts(found) == {0}
    assert found.requeue_at == NOW - 1 + 10
    assert attempts(look(MXJOB, with_status(job, found), *jobs, *rest, *pods, now=NOW + 9)) == {1}


def test_a_failure_of_a_gang_that_is_seen_only_after_the_resume_counts() -> None:
    job, jobs, rest = small_gang()
    unseen = look(MXJOB, with_status(job, Plan(job["status"]), suspend=True), *rest)
    resumed = look(MXJOB, with_status(job, unseen, suspend=False), *rest)
    found = look(MXJOB, with_status(job, resumed, suspend=False), *jobs, *rest, pod_of(jobs[0], 137, "mxnet"))
    assert failures(found) == 1
    assert {one.name for one in found.deletes} == {one["metadata"]["name"] for one in jobs}


def test_a_failed_worker_that_is_seen_only_after_the_resume_is_counted_before_it_is_deleted() -> None:
    job, made = begun(ELASTICJOB, elastic(1).spec)
    pod, service = made["Pod small-worker-0"], made["Service small-worker-0"]
    unseen = look(ELASTICJOB, with_status(job, Plan(job["status"]), suspend=True), service)
    resumed = look(ELASTICJOB, with_status(job, unseen, suspend=False), service)
    found = look(ELASTICJOB, with_status(job, resumed, suspend=False), service, ended(pod, 1, "elasticjob-worker"))
    assert failures(found) == 1
    assert [one.name for one in found.deletes] == ["small-worker-0"]


def test_a_worker_that_was_taken_out_does_not_run_on_when_the_others_have_ended() -> None:
    job, made = begun(ELASTICJOB, elastic(2).spec)
    sets = {"Worker": {**job["spec"]["replicaSpecs"]["Worker"], "replicas": 1}}
    first = ended(made.pop("Pod small-worker-0"), 0, "elasticjob-worker")
    edited = with_status(job, Plan(job["status"]), replicaSpecs=sets)
    found = look(ELASTICJOB, edited, first, *made.values())
    assert found.status["state"] == "Succeeded"
    assert [one.name for one in found.deletes] == ["small-worker-1"]
    again = look(ELASTICJOB, with_status(edited, found), first, *made.values())
    assert [one.name for one in again.deletes] == ["small-worker-1"]


def test_a_suspend_keeps_a_master_whose_pod_has_ended_well_and_whose_job_does_not_say_so_yet() -> None:
    job, made = begun(CHAINERJOB, chainer(1).spec)
    pod = pod_of(made["Job small-master"], 0, "chainer")
    found = look(CHAINERJOB, with_status(job, Plan(job["status"]), suspend=True), *made.values(), pod)
    assert found.deletes == ()
    assert found.status["state"] == "Succeeded"


def test_the_rights_follow_the_sets_although_an_edit_of_the_master_is_not_followed() -> None:
    job, made = begun(CHAINERJOB, chainer(1).spec)
    sets = {"a": {**job["spec"]["workerSets"]["a"], "replicas": 2}}
    master = {"template": pod_template("chainer", image="j")}
    found = look(CHAINERJOB, with_status(job, Plan(job["status"]), workerSets=sets, master=master), *made.values())
    assert {one.name for one in found.patches} == {"small-launcher-role", "small-assets", "small-workerset-a"}


def test_a_set_that_is_put_back_with_another_template_is_not_taken_for_the_old_one() -> None:
    job, made = begun(CHAINERJOB, chainer(1).spec)
    gone = look(CHAINERJOB, with_status(job, Plan(job["status"]), workerSets={}), *made.values())
    assert "small-workerset-a" in {one.name for one in gone.deletes}
    other = {"a": {"replicas": 1, "template": pod_template("chainer", image="k")}}
    back = look(CHAINERJOB, with_status(job, gone, workerSets=other), *made.values())
    assert [one.name for one in back.deletes] == ["small-workerset-a"]
