"""Our definitions of TrainJob and of the runtimes are Trainer's, but for the pod templates, whose unknown fields are
kept, and for what this file names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conversion.trainer_schemas import definition_text
from trainyard.core import violations
from trainyard.kinds.trainjob.definitions import RUNTIME_RULES, TRAIN_JOB_RULES, definitions
from trainyard.objects import Json

OURS = {definition["spec"]["names"]["kind"]: definition for definition in definitions()}
COMPARED = (
    "type", "format", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems",
    "minProperties", "enum", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
)  # fmt: skip
OF_PODS = frozenset((
    "affinity", "env", "resourcesPerNode", "securityContext", "tolerations", "volumes", "podFailurePolicy", "selector",
))  # fmt: skip
"""Objects in which only the types are compared, by the API server itself: their fields are Kubernetes' own."""
DIFFERENCES = {
    "spec.trainer.numNodes minimum": (None, 0),
    "status.trainyard": ("absent", "present"),
}
"""Path -> Trainer's value and ours. The bound is that of Trainer's next version."""


def theirs(kind: str) -> Json:
    definition: Json = yaml.load(definition_text(kind), yaml.CSafeLoader)
    return definition


def root(definition: Json) -> Json:
    (version,) = definition["spec"]["versions"]
    schema: Json = version["schema"]["openAPIV3Schema"]
    return schema


def differences(path: str, left: Json, right: Json) -> Iterator[tuple[str, Any]]:
    for keyword in COMPARED:
        if left.get(keyword) != right.get(keyword):
            yield f"{path} {keyword}", (left.get(keyword), right.get(keyword))
    if set(left.get("required", ())) != set(right.get("required", ())):
        yield f"{path} required", (left.get("required"), right.get("required"))
    name = path.rpartition(".")[2]
    if name.removesuffix("[]") in OF_PODS or "x-kubernetes-preserve-unknown-fields" in right:
        return
    fields, ours = left.get("properties", {}), right.get("properties", {})
    for field in fields.keys() | ours.keys():
        below = f"{path}.{field}".lstrip(".")
        if field in fields and field in ours:
            yield from differences(below, fields[field], ours[field])
        else:
            yield below, tuple("present" if field in side else "absent" for side in (fields, ours))
    for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in left and keyword in right:
            yield from differences(path + suffix, left[keyword], right[keyword])


def is_template_of_pods(path: str) -> bool:
    return path.startswith("spec.template.spec.replicatedJobs[].template.spec.template")


@pytest.mark.parametrize("kind", ["TrainJob", "TrainingRuntime"])
def test_fields_bounds_and_defaults_are_trainers(kind: str) -> None:
    listed = dict(differences("", root(theirs(kind)), root(OURS[kind])))
    listed = {path: values for path, values in listed.items() if not is_template_of_pods(path)}
    assert {path: values for path, values in listed.items() if DIFFERENCES.get(path) != values} == {}


def validations(path: str, schema: Json) -> Iterator[tuple[str, str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["rule"], rule["message"]
    for field, below in schema.get("properties", {}).items():
        yield from validations(f"{path}.{field}".lstrip("."), below)
    if "items" in schema:
        yield from validations(f"{path}[]", schema["items"])


@pytest.mark.parametrize("kind", ["TrainJob", "TrainingRuntime"])
def test_rules_are_trainers_with_their_messages(kind: str) -> None:
    left, right = (set(validations("", root(definition))) for definition in (theirs(kind), OURS[kind]))
    of_the_next_version = {
        ("spec.trainer.numProcPerNode", "self >= 1", "numProcPerNode must be greater than or equal to 1")
    }
    assert right - left == (of_the_next_version if kind == "TrainJob" else set())
    assert left - right == set()


@pytest.mark.parametrize("kind", ["TrainJob", "TrainingRuntime"])
def test_names_scope_columns_and_subresources_are_trainers(kind: str) -> None:
    def without_schema(definition: Json) -> Json:
        (version,) = definition["spec"]["versions"]
        return {**definition["spec"], "versions": [{key: value for key, value in version.items() if key != "schema"}]}

    expected = without_schema(theirs(kind))
    if kind == "TrainJob":  # the type of the last condition, which a running job lacks and a resumed one keeps
        state = expected["versions"][0]["additionalPrinterColumns"][0]
        assert state == {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
        state["jsonPath"] = ".status.trainyard.state"
    assert without_schema(OURS[kind]) == expected


def test_the_two_kinds_of_runtimes_differ_by_scope_alone() -> None:
    assert root(OURS["ClusterTrainingRuntime"]) == root(OURS["TrainingRuntime"])
    assert OURS["ClusterTrainingRuntime"]["spec"]["scope"] == "Cluster"


def job(**spec: Any) -> Json:
    return {"metadata": {"name": "tj"}, "spec": {"runtimeRef": {"name": "r"}, **spec}}


def patched(manager: str = "a.b/c", **pod: Any) -> Json:
    template = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [template]}}}}


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        (None, {**job(), "metadata": {"name": "1a"}}, ["metadata.name must match"]),
        (None, {**job(), "metadata": {"name": "a" * 64}}, ["metadata.name must be no more"]),
        (None, job(managedBy="x"), ["spec.managedBy: ManagedBy must be"]),
        (None, job(initializer={"model": {"storageUri": "hf://"}}), ["spec.initializer.model.storageUri: storageUri"]),
        (None, job(initializer={"model": {"storageUri": ""}}), []),
        (None, job(trainer={"numProcPerNode": 0}), ["spec.trainer.numProcPerNode: numProcPerNode must be"]),
        (job(trainer={"numNodes": 1}), job(trainer={"numNodes": 2}), ["spec.trainer: field is immutable"]),
        (job(), job(trainer={"numNodes": 2}), []),
        (job(activeDeadlineSeconds=600), job(activeDeadlineSeconds=5), ["spec.activeDeadlineSeconds: field is"]),
        (
            job(runtimePatches=[patched(), patched("d.e/f", serviceAccountName="a")]),
            job(runtimePatches=[patched("d.e/f", serviceAccountName="b"), patched(nodeSelector={"a": "b"})]),
            ["spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec."],
        ),
    ],
)
def test_rules_of_jobs_without_cel(old: Json | None, new: Json, paths: list[str]) -> None:
    problems = [str(problem) for problem in violations(TRAIN_JOB_RULES, new, old)]
    assert len(problems) == len(paths)
    assert all(problem.startswith(path) or path in problem for problem, path in zip(problems, paths, strict=True))


def runtime(policy: Json | None = None, **spec: Any) -> Json:
    return {"spec": {"mlPolicy": policy or {}, "template": {"spec": {"replicatedJobs": [], **spec}}}}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, runtime({"torch": {}, "mpi": {}}), "Only one of the policy can be configured"),
        (None, runtime({"flux": {"numProcPerNode": 0}}), "NumProcPerNode in fluxPolicy must be >= 1"),
        (
            None,
            runtime({"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["node"]}]}}}),
            "containerNames must not include the main node container",
        ),
        (
            None,
            runtime(startupPolicy={"startupPolicyOrder": "InOrder"}, replicatedJobs=[{"name": "a", "dependsOn": []}]),
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        ),
        (
            None,
            runtime(volumeClaimPolicies=[{"templates": [{"metadata": {"namespace": "x"}}]}]),
            "namespace cannot be set for VolumeClaimPolicies templates",
        ),
        (runtime(network={"subdomain": "a"}), runtime(network={"subdomain": "b"}), "Value is immutable"),
        (
            runtime(replicatedJobs=[{"name": "a", "dependsOn": []}]),
            runtime(replicatedJobs=[{"name": "b"}, {"name": "a", "dependsOn": [{"name": "b"}]}]),
            "Value is immutable",
        ),
    ],
)
def test_rules_of_runtimes_without_cel(old: Json | None, new: Json, text: str) -> None:
    (problem,) = violations(RUNTIME_RULES, new, old)
    assert text in problem.text
    assert not violations(RUNTIME_RULES, old or runtime(), None)
