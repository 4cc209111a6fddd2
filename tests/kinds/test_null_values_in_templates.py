"""Faults that a reading of the law against the kinds found, each as the small case that shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.builders import NOW, replicas, tfjob
from tests.support.samples import (
    KINDS_WITH_TEMPLATES,
    KUBEFLOW_ROLES,
    chainerjob,
    elasticjob,
    kubeflow_job,
    mx_set,
    mxjob,
    pods,
    worker_set,
)
from trainyard import kinds
from trainyard.core import Config, Kind, Observed, Plan, plan, render_object
from trainyard.kinds import CHAINERJOB, ELASTICJOB, MXJOB, TFJOB
from trainyard.objects import Json


def first(kind: Kind, job: Json) -> tuple[Plan, list[Json]]:
    """The first plan of a job and everything it makes."""
    planned = plan(kind, job, Observed(), NOW)
    stored = {**job, "spec": {**job["spec"], **(planned.spec_patch or {})}, "status": planned.status}
    return planned, [render_object(kind, stored, create, Config()) for create in planned.creates]


def with_meta(template: Json, meta: Any) -> Json:
    return {**template, "metadata": meta}


def kubeflow_with_meta(kind: str, meta: Any) -> Json:
    _, container, roles = KUBEFLOW_ROLES[kind]
    sets: dict[str, Any] = {role: {"template": with_meta(pods(container), meta)} for role in roles}
    return kubeflow_job(kind, **sets)


JOBS: dict[str, Callable[[Any], Json]] = {
    "TfJob": lambda meta: tfjob(replicas("MASTER", template=with_meta(pods("tensorflow"), meta))),
    "MxJob": lambda meta: mxjob(mx_set("WORKER", template=with_meta(pods("mxnet"), meta)), jobMode="local"),
    "ChainerJob": lambda meta: chainerjob({"ws0": worker_set(template=with_meta(pods("chainer"), meta))}),
    "ElasticJob": lambda meta: elasticjob(worker={"template": with_meta(pods("elasticjob-worker"), meta)}),
    **{kind: partial(kubeflow_with_meta, kind) for kind in KUBEFLOW_ROLES},
}


@pytest.mark.parametrize(
    "meta", [{"labels": 5}, {"labels": ["a"]}, {"annotations": "x"}, {"labels": {"a": 5}}], ids=str
)
@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
def test_labels_that_are_none_fail_the_job_with_their_path(kind: Kind, meta: Json) -> None:
    job = JOBS[kind.gvk.kind](meta)
    assert any("template.metadata" in problem.path for problem in kinds.admit(kind, job)[1])
    problems, children = first(kind, job)
    assert problems.status["state"] == "Failed" and not children


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: kind.gvk.kind)
def test_null_values_that_the_old_operators_stored_in_a_template_are_accepted(kind: Kind) -> None:
    job = JOBS[kind.gvk.kind]({"creationTimestamp": None, "labels": None, "annotations": None})
    assert not kinds.admit(kind, job)[1]
    assert first(kind, job)[1]


def started_with(kind: Kind, good: Json, odd: Json) -> Plan:
    """What is planned when the template of a job that runs becomes another one, past every definition."""
    problems, children = first(kind, good)
    assert children
    return plan(kind, {**odd, "status": problems.status}, Observed(), NOW)


@pytest.mark.parametrize("mounts", [5, ["x"], [None], {}], ids=str)
def test_mounts_that_are_none_fail_a_new_job_and_leave_one_that_runs_alone(mounts: Any) -> None:
    template = pods("tensorflow")
    template["spec"]["containers"][0]["volumeMounts"] = mounts
    good, odd = (
        tfjob(replicas("MASTER"), replicas("PS", template=each_template, IsDefaultPS=True))
        for each_template in (None, template)
    )
    failed, children = first(TFJOB, odd)
    assert "containers[0].volumeMounts" in failed.status["reason"] and not children
    condition_types = {condition["type"] for condition in started_with(TFJOB, good, odd).status["conditions"]}
    assert "SpecChangeIgnored" in condition_types and "Failed" not in condition_types


def test_a_list_that_is_none_in_a_job_that_runs_gives_a_plan() -> None:
    job = tfjob(replicas("MASTER"), replicas("PS"))
    problems, _ = first(TFJOB, job)
    broken = {**job, "spec": {**job["spec"], "replicaSpecs": 5}, "status": problems.status}
    condition_types = {condition["type"] for condition in plan(TFJOB, broken, Observed(), NOW).status["conditions"]}
    assert "SpecChangeIgnored" in condition_types


def test_a_variable_with_a_null_name_fails_a_new_job_and_does_not_affect_a_running_one() -> None:
    template = pods("mxnet")
    template["spec"]["containers"][0]["env"] = [{"name": {"a": 1}}]
    odd = mxjob(mx_set("SCHEDULER", template=template), mx_set("SERVER"), mx_set("WORKER"))
    failed, children = first(MXJOB, odd)
    assert "containers[0].env[0].name" in failed.status["reason"] and not children
    condition_types = {condition["type"] for condition in started_with(MXJOB, mxjob(), odd).status["conditions"]}
    assert "SpecChangeIgnored" in condition_types and "Failed" not in condition_types


def test_a_limit_of_gpus_without_end_counts_as_one_slot() -> None:
    template = pods("chainer")
    template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "9" * 5000}}
    _, children = first(CHAINERJOB, chainerjob({"ws0": worker_set(template=template)}))
    files = next(obj["data"] for obj in children if obj["kind"] == "ConfigMap")
    assert files["statefulsets_and_slots"] == "example-workerset-ws0 slots=1 replicas=2\n"


def test_null_replicas_are_one_worker_even_if_an_older_crd_stored_them() -> None:
    _, children = first(ELASTICJOB, elasticjob(worker={"replicas": None}))
    pod = next(obj for obj in children if obj["kind"] == "Pod")
    assert pod["spec"]["containers"][0]["args"][3] == "--nnodes=1:1"


def test_a_whole_number_written_as_a_float_is_an_integer() -> None:
    _, elastic = first(ELASTICJOB, elasticjob(worker={"replicas": 2.0}, minReplicas=1.0))
    pods = [obj for obj in elastic if obj["kind"] == "Pod"]
    assert len(pods) == 2
    assert pods[-1]["spec"]["containers"][0]["args"][3] == "--nnodes=1:2"
    _, chainer = first(CHAINERJOB, chainerjob({"ws0": worker_set(None, replicas=3.0, mpiConfig={"slots": 2.0})}))
    files = next(child["data"] for child in chainer if child["kind"] == "ConfigMap")
    assert files["statefulsets_and_slots"] == "example-workerset-ws0 slots=2 replicas=3\n"
    _, gang = first(MXJOB, mxjob(mx_set("SCHEDULER"), mx_set("SERVER", replicas=2.0), mx_set("WORKER", PsRootPort=1.0)))
    assert [child["kind"] for child in gang].count("Job") == 4
