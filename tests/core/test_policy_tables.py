"""The policies of a TfJob, whose carrier is the batch Job: which children are deleted at an end (S3, S4, S5).

The other carriers and kinds are in test_policies_of_every_kind.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.builders import NOW, batch_job, look, pod_of, replicas, service, started, template
from trainyard import kinds
from trainyard.core import Observed, decode_child, plan
from trainyard.objects import Json, format_time

Made = tuple[Json, ...]
"""What carries a slot, and its pods."""


class Carried(NamedTuple):
    """How the objects of one carrier look in the three states of a replica."""

    running: Callable[[str], Made]
    succeeded: Callable[[str], Made]
    failed: Callable[[str], Made]


def job_and(role: str, phase: str, code: int | None = None, **status: Any) -> Made:
    job = batch_job(role, **status)
    return job, pod_of(job, phase, code=code)


CARRIED = Carried(
    running=lambda role: job_and(role, "Running"),
    succeeded=lambda role: job_and(role, "Succeeded", 0, complete=True),
    failed=lambda role: job_and(role, "Failed", 1, failed="BackoffLimitExceeded"),
)
ENDS = ("succeeded", "failed for good", "stopped by its limit", "stopped by its deadline", "suspended")
# What is left of: a MASTER as the end has it, a running WORKER, a WORKER that ended with 0, the Service.
TABLE = [
    (clean, end, left)
    for clean, ends in {
        "": ("all", "all", "ended", "ended", "ended"),
        "None": ("all", "all", "ended", "ended", "ended"),
        "Running": ("ended", "ended", "ended", "ended", "ended"),
        "All": ("nothing", "nothing", "nothing", "nothing", "ended"),
    }.items()
    for end, left in zip(ENDS, ends, strict=True)
]


def ended(end: str, carried: Carried) -> tuple[Json, Made]:
    """The policy that causes the end, and a MASTER that reaches it."""
    if end == "succeeded":
        return {}, carried.succeeded("MASTER")
    if end == "failed for good":
        return {}, carried.failed("MASTER")
    if end == "suspended":
        return {"suspend": True}, carried.running("MASTER")
    return {"backoffLimit": 0} if "limit" in end else {"activeDeadlineSeconds": 30}, carried.running("MASTER")


@pytest.mark.parametrize(("clean", "end", "left"), TABLE)
def test_the_children_that_each_clean_pod_policy_keeps(clean: str, end: str, left: str) -> None:
    carried = CARRIED
    policy, master = ended(end, carried)
    spec = {**policy, **({"cleanPodPolicy": clean} if clean else {})}
    job = started(replicas("MASTER"), replicas("WORKER", 2, template=template(restartPolicy="Never")), **spec)
    running, done = list(carried.running("WORKER")), [rename(pod) for pod in carried.succeeded("WORKER")]
    if "limit" in end:
        running.append(pod_of(running[0], "Failed", 7, code=137))
    if end == "suspended":
        job["status"]["conditions"].append({"type": "Running", "status": "True", "reason": "JobRunning"})
    planned = look(job, *master, *running, *done)
    gone = {delete.uid for delete in planned.deletes}
    whole = [master[0], running[0], done[0], service()]
    live = [pod for pod in (master[0], running[0]) if not is_over(pod)]
    expected = {"all": [], "ended": live, "nothing": whole}[left]
    assert gone == {pod["metadata"]["uid"] for pod in expected}
    assert not planned.creates and not planned.patches


def rename(pod: Json) -> Json:
    """The same object for slot 1."""
    text = json.dumps(pod).replace("worker-76no-0", "worker-76no-1")
    new: Json = json.loads(text.replace('"trainyard.dev/index": "0"', '"trainyard.dev/index": "1"'))
    return new


def is_over(job: Json) -> bool:
    return bool(job["status"]["conditions"])


def test_a_finished_and_cleaned_job_has_an_empty_plan() -> None:
    for clean in ("", "None", "Running", "All"):
        policy: dict[str, Any] = {"cleanPodPolicy": clean} if clean else {}
        job = started(**policy)
        first = look(job, *job_and("MASTER", "Succeeded", 0, complete=True), *job_and("WORKER", "Running"))
        gone = {delete.uid for delete in first.deletes}
        rest = [*job_and("MASTER", "Succeeded", 0, complete=True), *job_and("WORKER", "Running")]
        kept = [pod for pod in rest if pod["metadata"]["uid"] not in gone and owner(pod) not in gone]
        again = plan(
            kinds.TFJOB, {**job, "status": first.status}, Observed(tuple(map(decode_child, kept))), NOW + 10**6
        )
        assert again.idle and again.requeue_at is None, clean


def owner(pod: Json) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


@pytest.mark.parametrize(("ttl", "after", "gone"), [(0, 0, True), (60, 59, False), (60, 60, True), (60, 10**6, True)])
def test_the_job_is_deleted_when_its_ttl_expires(ttl: int, after: int, gone: bool) -> None:
    job = started(ttlSecondsAfterFinished=ttl)
    ended_job = {**job, "status": look(job, *job_and("MASTER", "Succeeded", 0, complete=True)).status}
    planned = look(ended_job, *job_and("MASTER", "Succeeded", 0, complete=True), now=NOW + after)
    assert [(d.gvk.kind, d.name) for d in planned.deletes] == ([("TfJob", "example-job")] if gone else [])
    assert planned.requeue_at == (None if gone else NOW + ttl)


def test_the_deadline_counts_from_the_start_and_is_scheduled() -> None:
    job = started(at=NOW, activeDeadlineSeconds=30)
    assert look(job, now=NOW + 10).requeue_at == NOW + 30
    planned = look(job, *job_and("MASTER", "Running"), now=NOW + 30)
    assert planned.status["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert planned.status["phase"] == "Done" and planned.status["state"] == "Failed"


def test_a_resume_starts_the_clock_of_the_deadline_anew() -> None:
    job = started(at=NOW, activeDeadlineSeconds=30, suspend=True)
    job["status"] = started(at=NOW, activeDeadlineSeconds=30)["status"]
    paused = {**job, "status": look(job, now=NOW + 20).status}
    assert "startTime" not in paused["status"]
    assert look(paused, now=NOW + 1000).requeue_at is None
    resumed = {**paused, "spec": {**paused["spec"], "suspend": False}}
    planned = look(resumed, now=NOW + 1000)
    assert planned.status["startTime"] == format_time(NOW + 1000) and planned.requeue_at == NOW + 1030
    assert {create.attempt for create in planned.creates} == {1} and planned.status["resumes"] == 1


def test_a_succeeded_replica_is_not_created_again_by_a_resumption() -> None:
    job = started(suspend=True)
    job["status"] = started()["status"]
    done = job_and("WORKER", "Succeeded", 0, complete=True)
    paused = look(job, *job_and("MASTER", "Running"), *done)
    assert [delete.name for delete in paused.deletes] == ["master-76no-0"]
    resumed = {**job, "status": paused.status, "spec": {**job["spec"], "suspend": False}}
    planned = look(resumed, *done)
    assert [create.name for create in planned.creates] == ["master-76no-0"] and not planned.deletes


def test_a_job_created_suspended_starts_at_attempt_0() -> None:
    born = started(suspend=True)
    assert born["status"]["phase"] == "Creating" and "startTime" not in born["status"]
    planned = look({**born, "spec": {**born["spec"], "suspend": False}})
    assert {create.attempt for create in planned.creates} == {0}
    assert "resumes" not in planned.status


@pytest.mark.parametrize("manager", ["", "trainyard.dev/operator"])
def test_a_job_with_managed_by_of_this_operator_is_served(manager: str) -> None:
    job = started(managedBy=manager)
    assert look(job).creates


@pytest.mark.parametrize("spec", [{"managedBy": "example.com/other"}, {"managedBy": "x", "suspend": True}])
def test_a_job_managed_by_another_is_left_alone(spec: Json) -> None:
    assert look({**started(), "spec": {**started()["spec"], **spec}}).idle


def test_an_edit_after_the_start_sets_spec_change_ignored_until_it_is_reverted() -> None:
    job = started()
    children = *job_and("MASTER", "Running"), *job_and("WORKER", "Running")
    running = {**job, "status": look(job, *children).status}
    spec = running["spec"]
    master, worker = spec["replicaSpecs"]
    edited = {**running, "spec": {**spec, "replicaSpecs": [master, {**worker, "replicas": 3}]}}
    planned = look(edited, *children)
    assert not planned.creates and not planned.deletes
    assert planned.status["conditions"][-1]["type"] == "SpecChangeIgnored"
    assert "WORKER has 1 replicas, the spec now says 3" in planned.status["conditions"][-1]["message"]
    back = look({**running, "status": planned.status}, *children)
    assert back.status["conditions"][-1]["status"] == "False"


def test_a_lost_replica_of_an_edited_role_is_not_made_from_the_edit() -> None:
    job = started()
    spec = job["spec"]
    worker = {**spec["replicaSpecs"][1], "template": template(restartPolicy="Never", hostNetwork=True)}
    planned = look({**job, "spec": {**spec, "replicaSpecs": [spec["replicaSpecs"][0], worker]}})
    assert [create.name for create in planned.creates] == ["master-76no-0"]


def test_while_suspended_the_spec_may_change() -> None:
    job = started()
    paused = {**job, "spec": {**job["spec"], "suspend": True}}
    paused["status"] = look(paused).status
    more = {**paused["spec"], "suspend": False, "replicaSpecs": [replicas("MASTER"), replicas("WORKER", 3)]}
    planned = look({**paused, "spec": more})
    assert len([create for create in planned.creates if create.slot]) == 4
    assert all(condition["type"] != "SpecChangeIgnored" for condition in planned.status["conditions"])
