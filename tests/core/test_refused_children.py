"""Creates that the API server refused: reported, retried with back-off, or the end of the job (S8, F30, F31)."""

from __future__ import annotations

import pytest

from tests.support.builders import NOW, batch_job, pod_of, service, started
from trainyard.core import Observed, Plan, Refusal, decode_child, plan
from trainyard.kinds import TFJOB
from trainyard.objects import Json, Ref

WORKER = Ref("Job", "worker-76no-0")


def refused(refusal: Refusal, *children: Json, ref: Ref = WORKER, now: float = NOW) -> Plan:
    observed = Observed(tuple(map(decode_child, (service(), *children))), refused={ref: refusal})
    return plan(TFJOB, started(), observed, now)


def condition(planned: Plan, kind: str) -> Json:
    first: Json = next(condition for condition in planned.status["conditions"] if condition["type"] == kind)
    return first


def test_a_taken_name_is_reported_and_the_other_children_are_created() -> None:
    planned = refused(Refusal(409, "AlreadyExists", "it belongs to CronJob nightly", NOW))
    job_condition = condition(planned, "NameConflict")
    assert (job_condition["status"], job_condition["reason"]) == ("True", "NameTaken")
    assert job_condition["message"] == "Job worker-76no-0: it belongs to CronJob nightly"
    assert [create.name for create in planned.creates] == ["master-76no-0"]
    assert planned.events[0].type == "Warning"


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (
            Refusal(403, "Forbidden", "exceeded quota: small, requested: pods=1", NOW, policy="QuotaExceeded"),
            "QuotaExceeded",
        ),
        (Refusal(403, "Forbidden", "the namespace is being terminated", NOW), "Forbidden"),
        (
            Refusal(403, "Forbidden", 'violates PodSecurity "restricted:latest"', NOW, policy="PodSecurity"),
            "PodSecurity",
        ),
        (
            Refusal(422, "Invalid", "is forbidden: ValidatingAdmissionPolicy", NOW, policy="AdmissionPolicy"),
            "AdmissionPolicy",
        ),
        (Refusal(400, "", "no reason given", NOW), "Refused"),
        (Refusal(413, "RequestEntityTooLarge", "too large", NOW), "RequestEntityTooLarge"),
    ],
)
def test_any_other_refusal_blocks_with_its_reason(refusal: Refusal, reason: str) -> None:
    planned = refused(refusal)
    job_condition = condition(planned, "Blocked")
    assert (job_condition["status"], job_condition["reason"]) == ("True", reason) and refusal.message in job_condition[
        "message"
    ]
    assert all(condition["type"] != "NameConflict" for condition in planned.status["conditions"])


@pytest.mark.parametrize(("tries", "seconds"), [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (9, 300), (99, 300)])
def test_a_refused_create_is_retried_after_ten_seconds_doubling_to_five_minutes(tries: int, seconds: int) -> None:
    refusal = Refusal(403, "Forbidden", "exceeded quota", NOW, tries)
    waiting = refused(refusal, now=NOW + seconds - 1)
    assert WORKER not in {create.ref for create in waiting.creates} and waiting.requeue_at == NOW + seconds
    assert WORKER in {create.ref for create in refused(refusal, now=NOW + seconds).creates}


def test_an_invalid_child_fails_the_job_with_the_servers_message() -> None:
    master = batch_job("MASTER")
    planned = refused(
        Refusal(422, "Invalid", "spec.template.spec.containers[0].image: Required", NOW), master, pod_of(master)
    )
    assert (planned.status["phase"], planned.status["state"]) == ("Failed", "Failed")
    assert "Job worker-76no-0" in planned.status["reason"] and "image: Required" in planned.status["reason"]
    assert [delete.name for delete in planned.deletes] == ["master-76no-0"] and not planned.creates


def test_a_refusal_of_an_existing_or_unneeded_child_has_no_effect() -> None:
    worker = batch_job("WORKER")
    for ref, children in ((WORKER, [worker]), (Ref("Job", "worker-76no-7"), [])):
        planned = refused(Refusal(422, "Invalid", "x", NOW), *children, ref=ref)
        assert {condition["type"] for condition in planned.status["conditions"]} == {"Created"}


def test_the_condition_becomes_false_when_the_child_is_created() -> None:
    blocked = refused(Refusal(403, "Forbidden", "exceeded quota", NOW))
    job = {**started(), "status": blocked.status}
    planned = plan(
        TFJOB, job, Observed(tuple(map(decode_child, (service(), batch_job("MASTER"), batch_job("WORKER"))))), NOW
    )
    assert condition(planned, "Blocked")["status"] == "False"
