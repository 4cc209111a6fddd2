"""What a person may write and may not: every bad input that the schema or a rule answers, with its path and its fix."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import NOW, replicas, template, tfjob
from trainyard import kinds
from trainyard.core import Observed, plan
from trainyard.kinds import TFJOB
from trainyard.objects import Json, Problem

MASTER, WORKER = replicas("MASTER"), replicas("WORKER")
LIST = "spec.replicaSpecs"


def job(spec: Any, name: str = "x") -> Json:
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}


def problems(wire: Json) -> list[Problem]:
    return kinds.admit(TFJOB, wire)[1]


def deep(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def with_worker(**fields: Any) -> Json:
    return {"replicaSpecs": [MASTER, {**WORKER, **fields}]}


def with_master(**fields: Any) -> Json:
    return {"replicaSpecs": [{**MASTER, **fields}]}


def containers(value: Any) -> Json:
    return with_master(template={"spec": {"containers": value}})


BAD: list[tuple[str, Json, str, str]] = [
    (
        "a MASTER of two",
        with_master(replicas=2),
        f"{LIST}[0].replicas",
        "invalid job spec: The MASTER must have Replicas = 1; write replicas: 1",
    ),
    (
        "a MASTER of none",
        with_master(replicas=0),
        f"{LIST}[0].replicas",
        "invalid job spec: The MASTER must have Replicas = 1",
    ),
    ("two MASTERs", {"replicaSpecs": [MASTER, MASTER]}, LIST, "a job must have 1 and only 1 master"),
    ("no MASTER", {"replicaSpecs": [WORKER]}, LIST, "list the type MASTER exactly once"),
    (
        "no container tensorflow",
        with_master(template=template("main")),
        f"{LIST}[0].template.spec.containers",
        "invalid job spec: Replica type MASTER is missing a container named tensorflow; name the container",
    ),
    (
        "no containers",
        with_worker(template={"spec": {}}),
        f"{LIST}[1].template.spec.containers",
        "Replica type WORKER is missing a container named tensorflow",
    ),
    (
        "no template",
        with_worker(template=None),
        f"{LIST}[1].template",
        "there was a problem setting defaults for job spec: ReplicaType: WORKER, Replica is missing Template; {",
    ),
    ("spec is null", job(None), "spec", "Required value: write an object"),
    ("spec is a list", job([]), "spec", "must be an object"),
    ("an empty spec", {}, LIST, "write replicaSpecs, a list with one MASTER"),
    ("an empty list", {"replicaSpecs": []}, LIST, "a job has replicas"),
    ("replicaSpecs is an object", {"replicaSpecs": {"a": 1}}, LIST, "must be a list"),
    (
        "an empty item",
        {"replicaSpecs": [None]},
        LIST,
        "there was a problem setting defaults for job spec: ReplicaSpecs contain nil; item 0 is empty: write the set",
    ),
    ("an empty item beside others", {"replicaSpecs": [MASTER, None]}, LIST, "contain nil; item 1 is empty"),
    (
        "an empty item of the other spelling",
        {"replica_specs": [None]},
        "spec.replica_specs",
        "ReplicaSpecs contain nil",
    ),
    (
        "restartPolicy: Sometimes",
        with_worker(template=template(restartPolicy="Sometimes")),
        f"{LIST}[1].template.spec.restartPolicy",
        "Sometimes is no restartPolicy of a pod: write Always, OnFailure or Never, or leave it out",
    ),
    (
        "restartPolicy: never",
        with_master(template=template(restartPolicy="never")),
        f"{LIST}[0].template.spec.restartPolicy",
        "never is no restartPolicy of a pod: write Always, OnFailure or Never",
    ),
    ("negative replicas", with_worker(replicas=-1), f"{LIST}[1].replicas", "-1: must be greater than or equal to 0"),
    ("huge replicas", with_worker(replicas=2**31), f"{LIST}[1].replicas", "must be less than or equal to 10000"),
    ("replicas beyond 64 bits", with_worker(replicas=2**70), f"{LIST}[1].replicas", "must be"),
    ("replicas as text", with_worker(replicas="2"), f"{LIST}[1].replicas", "must be an integer, such as 1"),
    ("half a replica", with_worker(replicas=1.5), f"{LIST}[1].replicas", "must be an integer"),
    ("replicas: yes", with_worker(replicas=True), f"{LIST}[1].replicas", "must be an integer"),
    (
        "an unknown type",
        with_worker(tfReplicaType="Worker"),
        f"{LIST}[1].tfReplicaType",
        "TfReplicaType is Worker but must be one of [MASTER PS WORKER]",
    ),
    ("a type that is a number", with_worker(tfReplicaType=5), f"{LIST}[1].tfReplicaType", "must be a string"),
    ("port 0", with_master(tfPort=0), f"{LIST}[0].tfPort", "must be greater than or equal to 1"),
    ("port 65536", with_master(tfPort=65536), f"{LIST}[0].tfPort", "must be less than or equal to 65535"),
    ("a name too long for a label", job(with_master(), "x" * 64), "metadata.name", "at most 63 characters"),
    ("a RuntimeId in capitals", {**with_master(), "RuntimeId": "76NO"}, "spec.RuntimeId", "must match"),
    ("a RuntimeId too long", {**with_master(), "RuntimeId": "a" * 17}, "spec.RuntimeId", "must match"),
    ("a RuntimeId with a dash first", {**with_master(), "RuntimeId": "-a"}, "spec.RuntimeId", "must match"),
    (
        "both spellings of the list",
        {"replicaSpecs": [MASTER], "replica_specs": [MASTER]},
        "spec.replica_specs",
        "write one of the two",
    ),
    (
        "both spellings of TensorBoard",
        {**with_master(), "tensorboard": {"logDir": "/l"}, "tensorBoard": {"logDir": "/l"}},
        "spec.tensorBoard",
        "write one of the two",
    ),
    (
        "TensorBoard without logDir",
        {**with_master(), "tensorboard": {}},
        "spec.tensorboard.logDir",
        "tbReplicaSpec.LogDir must be specified",
    ),
    (
        "TensorBoard with an empty logDir",
        {**with_master(), "tensorBoard": {"logDir": ""}},
        "spec.tensorBoard.logDir",
        "tbReplicaSpec.LogDir must be specified",
    ),
    ("a type listed twice", {"replicaSpecs": [MASTER, WORKER, WORKER]}, LIST, "a type may be listed only once"),
    ("four sets", {"replicaSpecs": [MASTER, WORKER, WORKER, WORKER]}, LIST, "must have at most 3 items"),
    (
        "a cleanPodPolicy that is none",
        {**with_master(), "cleanPodPolicy": "running"},
        "spec.cleanPodPolicy",
        'supported values: "All", "None", "Running"',
    ),
    (
        "a negative backoffLimit",
        {**with_master(), "backoffLimit": -1},
        "spec.backoffLimit",
        "must be greater than or equal to 0",
    ),
    (
        "a time to live as text",
        {**with_master(), "ttlSecondsAfterFinished": "60"},
        "spec.ttlSecondsAfterFinished",
        "must be an integer",
    ),
    (
        "a deadline beyond 32 bits",
        {**with_master(), "activeDeadlineSeconds": 2**31},
        "spec.activeDeadlineSeconds",
        "must be less than or equal to 2147483647",
    ),
    ("suspend as text", {**with_master(), "suspend": "yes"}, "spec.suspend", "must be true or false, without quotes"),
    ("managedBy too long", {**with_master(), "managedBy": "x" * 64}, "spec.managedBy", "63"),
    (
        "containers is an object",
        containers({"name": "tensorflow"}),
        f"{LIST}[0].template.spec.containers",
        "must be a list",
    ),
    ("a template that is text", with_master(template="x"), f"{LIST}[0].template", "must be an object"),
    (
        "a container without a name",
        containers([{"image": "x"}]),
        f"{LIST}[0].template.spec.containers[0].name",
        "Required value",
    ),
    (
        "two containers of one name",
        containers([{"name": "tensorflow"}] * 2),
        f"{LIST}[0].template.spec.containers[1]",
        "Duplicate value",
    ),
    (
        "nested too deep",
        with_master(template={"spec": deep(200)}),
        "(the whole object)",
        "nested deeper than 100 levels",
    ),
]


@pytest.mark.parametrize(("spec", "path", "text"), [pytest.param(*row[1:], id=row[0]) for row in BAD])
def test_invalid_input_is_reported_with_its_path_and_its_fix(spec: Json, path: str, text: str) -> None:
    reported = problems(spec if "metadata" in spec else job(spec))
    assert any(problem.path == path and text in problem.text for problem in reported), [
        str(problem) for problem in reported
    ]


OF_THE_SPEC = [pytest.param(row[1], id=row[0]) for row in BAD if not {"metadata", "managedBy"} & row[1].keys()]


@pytest.mark.parametrize("spec", OF_THE_SPEC)
def test_a_stored_invalid_job_fails_before_children_are_created(spec: Json) -> None:
    planned = plan(TFJOB, {**tfjob(), "spec": spec}, Observed(), NOW)
    assert (planned.status["phase"], planned.status["state"]) == ("Failed", "Failed")
    assert planned.status["reason"] and not planned.creates and planned.spec_patch is None


@pytest.mark.parametrize("suspended", [False, True])
@pytest.mark.parametrize("spec", OF_THE_SPEC)
def test_an_invalid_edit_of_a_started_job_is_reported_and_stops_nothing(spec: Json, suspended: bool) -> None:
    """S1: once started, an invalid edit is S11's SpecChangeIgnored."""
    job = tfjob(MASTER, WORKER)
    job["status"] = plan(TFJOB, job, Observed(), NOW - 60).status
    if suspended:
        job["status"] = plan(TFJOB, {**job, "spec": {**job["spec"], "suspend": True}}, Observed(), NOW - 50).status
    edited = {**{key: value for key, value in job["spec"].items() if key != "replicaSpecs"}, **spec}
    planned = plan(TFJOB, {**job, "spec": edited}, Observed(), NOW)
    assert planned.status["state"] != "Failed" and not planned.deletes
    condition_types = {condition["type"] for condition in planned.status["conditions"] if condition["status"] == "True"}
    assert suspended or "SpecChangeIgnored" in condition_types


GOOD: list[tuple[str, Json]] = [
    ("the README's short form", {"replicaSpecs": [MASTER, WORKER, {"replicas": 2, "tfReplicaType": "PS"}]}),
    ("replica_specs", {"replica_specs": [MASTER]}),
    ("a type left out is MASTER", {"replicaSpecs": [{"template": template()}]}),
    ("nulls where Go has nil", with_master(replicas=None, tfPort=None, IsDefaultPS=None)),
    ("nulls in policies", {**with_master(), "cleanPodPolicy": None, "backoffLimit": None, "suspend": None}),
    ("tensorboard null, as the README prints it", {**with_master(), "tensorboard": None}),
    (
        "volumes null, as the README prints them",
        {**with_master(), "tensorboard": {"logDir": "/l", "volumes": None, "volumeMounts": None, "serviceType": ""}},
    ),
    (
        "creationTimestamp null, as the README prints it",
        with_master(template={**template(), "metadata": {"creationTimestamp": None}}),
    ),
    ("an empty RuntimeId", {**with_master(), "RuntimeId": ""}),
    ("a preset RuntimeId", {**with_master(), "RuntimeId": "my-run-01"}),
    ("no workers", with_worker(replicas=0)),
    ("five thousand workers, whose TF_CONFIG fits", with_worker(replicas=5000)),
    ("a PS without tensorflow", {"replicaSpecs": [MASTER, replicas("PS", template=template("sidecar"))]}),
    (
        "every policy",
        {
            **with_master(),
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 0,
            "activeDeadlineSeconds": 1,
            "backoffLimit": 0,
            "suspend": True,
            "managedBy": "trainyard.dev/operator",
        },
    ),
    ("fields of a newer Kubernetes", with_master(template=template(resourceClaims=[{"name": "gpu"}]))),
]


@pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec in GOOD])
def test_valid_input_is_admitted_by_the_server_and_the_operator(spec: Json) -> None:
    full, problems = kinds.admit(TFJOB, job(spec))
    assert problems == []
    for submitted in (full["spec"], spec):  # an older definition stores what it was given
        assert plan(TFJOB, {**tfjob(), "spec": submitted}, Observed(), NOW).status["state"] != "Failed"


def test_probable_mistakes_are_warnings() -> None:
    worker = {**WORKER, "template": template(restartPolicy="Always")}
    spec = {"replicaSpecs": [MASTER, worker], "tfimage": "x", "backofLimit": 3}
    warning_texts = [str(warning) for warning in kinds.warnings(TFJOB, job(spec))]
    assert any("spec.tfimage" in text for text in warning_texts) and any(
        "spec.backofLimit" in text for text in warning_texts
    )
    assert any("WORKER" in text and "OnFailure" in text for text in warning_texts)
    assert len(warning_texts) == 3


def test_unknown_fields_inside_a_template_are_the_clusters_business() -> None:
    spec = with_master(template=template(somethingNew={"a": 1}))
    assert kinds.warnings(TFJOB, job(spec)) == []


@pytest.mark.parametrize("policy", [None, "", "Always"])
def test_a_restart_policy_that_a_batch_job_does_not_take_is_a_warning(policy: Any) -> None:
    worker = {**WORKER, "template": template(restartPolicy=policy)}
    (warning,) = kinds.warnings(TFJOB, job({"replicaSpecs": [MASTER, worker]}))
    assert "WORKER" in str(warning) and "OnFailure is used" in str(warning)
