"""Kinds whose pod templates are in another object, whose roles have limits of their own or wait for one another, and
whose definition has a status of its own: the parts of `Kind` that none of the kinds of `tensorflow.org` needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.model.simulated_job import SimulatedJob
from tests.support.samples import job_of, pods
from trainyard.core import (
    POD_CARRIER,
    Api,
    Config,
    ExitAction,
    Job,
    Kind,
    Lifecycle,
    Outcome,
    ParsedSpec,
    PodRecipe,
    Policy,
    RestartScope,
    Role,
    RoleTable,
    Slot,
    StatusShape,
    TemplateKind,
    TemplateSource,
    parse_job,
)
from trainyard.core.job_state import Replica
from trainyard.core.names import digest
from trainyard.kinds.pods.templates import copy_template
from trainyard.objects import GVK, Json, NamespacedName, find_condition, operator_status
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace

RUNTIME = TemplateKind(GVK("example.com", "v1", "Runtime", "runtimes"), dict)
ROLES = ("Loader", "Worker")


def read(spec: Json, name: str) -> ParsedSpec:
    return ParsedSpec((), Policy(suspend=spec.get("suspend") is True), spec)


def read_with(spec: Json, name: str, snapshot: Json) -> ParsedSpec:
    template = snapshot["template"]
    roles = [Role(role, 1, 0, template, digest(template), backoff_limit=snapshot["limit"]) for role in ROLES]
    return replace(read(spec, name), roles=tuple(roles))


def public(job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]], replicas: Sequence[Replica]) -> Json:
    return {"phase": outcome.phase, "failedRole": outcome.role}


KIND = Kind(
    Api(GVK("example.com", "v1", "Training", "trainings"), "training", object, read),
    RoleTable(lambda role: POD_CARRIER, "main", child_resources=(POD,)),
    PodRecipe(
        lambda job, slot: f"{job.key.name}-{slot.role.lower()}-{slot.index}",
        lambda job, slot: {},
        lambda template, job, slot: copy_template(template),
        awaited_successes=lambda job, slot: frozenset() if slot.role == "Loader" else frozenset([Slot("Loader", 0)]),
    ),
    Lifecycle(
        lambda job: (frozenset(job.slots()),),
        restart_scope=RestartScope.SLOT,
        default_backoff_limit=None,
        on_exit=lambda job, slot, code, reason: ExitAction.RETRY,
    ),
    StatusShape(lambda job, outcome, counts: {}, public=public),
    template_source=TemplateSource(
        (RUNTIME,),
        lambda obj: (RUNTIME, NamespacedName("d", str(obj["spec"]["runtime"]))),
        lambda source: {"template": source["template"], "limit": source["limit"]},
        read_with,
        missing_reason="RuntimeMissing",
    ),
)


def runtime(limit: int = 0, image: str = "example.invalid/one") -> Json:
    return {"template": pods("main", image, restartPolicy="Never"), "limit": limit}


def simulated(source: Json | None) -> SimulatedJob:
    job = SimulatedJob(KIND, job_of("example.com/v1", "Training", {"runtime": "one"}))
    job.template_source = source
    return job


def test_a_job_keeps_a_snapshot_of_its_templates_with_its_first_status() -> None:
    job = simulated(runtime())
    first = job.step()
    assert first.status["trainyard"]["snapshot"] == runtime()
    assert [create.name for create in first.creates] == ["example-loader-0"]


def test_an_edit_or_the_deletion_of_the_templates_has_no_effect_on_a_job_that_has_begun() -> None:
    job = simulated(runtime())
    job.step()
    for source in (runtime(image="example.invalid/two"), None):
        job.template_source = source
        assert job.step().idle
    job.run()
    job.end("example-loader-0", 0)
    job.settle()
    assert job.get("Pod", "example-worker-0")["spec"]["containers"][0]["image"] == "example.invalid/one"


def test_a_job_whose_templates_are_missing_writes_nothing_and_looks_again() -> None:
    job = simulated(None)
    plan = job.look()
    assert plan.idle and plan.requeue_at == job.now + 5
    assert [(event.type, event.reason) for event in plan.pod_warnings] == [("Warning", "RuntimeMissing")]
    job.template_source = runtime()
    assert job.step().creates


def test_without_a_snapshot_a_job_has_no_roles() -> None:
    assert parse_job(KIND, simulated(None).job, Config()).roles == ()


def test_a_slot_is_created_when_the_slots_that_it_awaits_have_succeeded() -> None:
    job = simulated(runtime())
    job.settle()
    job.run()
    job.settle()
    assert job.names("Pod") == ["example-loader-0"]
    job.end("example-loader-0", 0)
    job.settle()
    assert job.names("Pod") == ["example-loader-0", "example-worker-0"]


@pytest.mark.parametrize(
    ("limit", "restarts", "phase"), [(0, 0, "Running"), (0, 1, "Failed"), (2, 1, "Running"), (2, 2, "Failed")]
)
def test_as_many_restarts_in_place_as_the_limit_of_a_role_fail_the_job(limit: int, restarts: int, phase: str) -> None:
    job = simulated(runtime(limit))
    job.settle()
    job.run()
    job.get("Pod", "example-loader-0")["status"]["containerStatuses"][0]["restartCount"] = restarts
    assert job.settle()["phase"] == phase


@pytest.mark.parametrize(("limit", "failures", "phase"), [(0, 1, "Failed"), (1, 1, "Starting"), (1, 2, "Failed")])
def test_more_failed_pods_than_the_limit_of_a_role_fail_the_job(limit: int, failures: int, phase: str) -> None:
    job = simulated(runtime(limit))
    for _ in range(failures):
        job.settle()
        job.run()
        job.settle()
        job.end("example-loader-0", 1)
        job.step()
        job.now += 60
    status = job.job["status"]
    assert status["phase"] == phase
    assert status["failedRole"] == ("Loader" if phase == "Failed" else "")
    failed = find_condition(operator_status(job.job)["conditions"], "Failed") or {}
    assert failed.get("reason") == ("BackoffLimitExceeded" if phase == "Failed" else None)


def test_fields_of_the_status_that_others_write_are_kept() -> None:
    job = simulated(runtime())
    job.job["status"] = {"progress": 7}
    assert job.settle()["progress"] == 7
