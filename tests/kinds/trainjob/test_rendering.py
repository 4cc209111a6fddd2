"""Corners of the rendering and of admission that no recording shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.drop_in.scenarios_trainjob import cluster_runtime, job, runtime, runtime_patch
from trainyard.kinds.trainjob import admission, torchtune
from trainyard.kinds.trainjob.pod_groups import pod_requests
from trainyard.kinds.trainjob.render import render
from trainyard.objects import Json


def container(cpu: str, **more: Any) -> Json:
    return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "9"}}, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        ({"containers": [container("1"), container("500m")]}, Fraction(3, 2)),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3),
        ({"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]}, 3),
        ({"containers": [container("1")], "initContainers": [container("2", **SIDECAR), container("4")]}, 6),
        ({"containers": [container("1")], "initContainers": [container("4"), container("2", **SIDECAR)]}, 4),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, Fraction(5, 4)),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}, None),
    ],
)
def test_requests_of_a_pod_are_those_that_the_scheduler_keeps(pod: Json, cpu: Fraction | int | None) -> None:
    assert pod_requests(pod, set()).get("cpu") == cpu


def test_a_patch_of_an_unknown_replicated_job_renders_nothing() -> None:
    patched = job(runtimePatches=[runtime_patch(pod={"nodeSelector": {"a": "b"}}, name="x")])
    assert render(patched, runtime({})) == render(job(), runtime({}))


def test_a_deprecated_runtime_of_the_cluster_is_warned_of() -> None:
    labels = {"trainer.kubeflow.org/support": "deprecated"}
    (text,) = admission.warnings(cluster_runtime({}, name="old", labels=labels))
    assert text.startswith('Referenced ClusterTrainingRuntime "old" is deprecated and will be removed in a future')
    assert admission.warnings(runtime({}, labels=labels)) == admission.warnings(cluster_runtime({})) == []


def test_patches_are_refused_while_pods_run() -> None:
    old, new = job(suspend=True), job(runtimePatches=[runtime_patch("a.b/c")], suspend=True)
    assert admission.refusals(new, runtime({}), old) == []
    (problem,) = admission.refusals(new, runtime({}), old, frozenset({"node"}))
    assert problem.text.endswith("when the JobSet's ReplicatedJob node is still active")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("torchtune-llama3.3-70b", "llama3_3/70B"),
        ("torchtune-qwen2.5-1.5b", "qwen2_5/1.5B"),
        ("torch-distributed", ""),
    ],
)
def test_the_model_is_in_the_name_of_its_runtime(name: str, model: str) -> None:
    assert torchtune.model_of(name) == model
