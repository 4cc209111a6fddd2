"""The metrics of jobs, from the versions of a job that the watch of an operator shows."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from trainyard import kinds
from trainyard.controller_runtime.work_queue import WorkQueue
from trainyard.objects import GVK, Json
from trainyard.operator.job_metrics import ALIASES, CAUSES, COUNTERS, FORGET_SECONDS, JobMetrics, framework

TFJOB = kinds.TFJOB.gvk
OURS = {"job_namespace": "team", "kind": "TfJob"}
THEIRS = {"job_namespace": "team", "framework": "tensorflow"}


def job(*true: str, uid: str = "a", **status: Any) -> Json:
    """A job with these conditions True."""
    time = "2026-01-01T00:01:30Z"
    conditions = [{"type": name, "status": "True", "lastTransitionTime": time} for name in true]
    meta = {"namespace": "team", "name": "mnist", "uid": uid}
    return {"metadata": meta, "status": {"conditions": conditions, **status}}


NEW = {"metadata": {"namespace": "team", "name": "mnist", "uid": "a"}}
STORIES: dict[str, tuple[list[Json | None], dict[str, int]]] = {
    "found by a new operator": ([None, job("Created", "Running", restarts=2)], {}),
    "submitted": ([None, NEW, job("Created")], {"trainyard_jobs_created": 1}),
    "succeeded": ([None, job("Created"), job("Created", "Succeeded")], {"trainyard_jobs_succeeded": 1}),
    "failed": ([None, job("Created"), job("Created", "Failed"), job("Failed")], {"trainyard_jobs_failed": 1}),
    "deleted": ([None, job("Created"), None], {"trainyard_jobs_deleted": 1}),
    "deleted and created under its name": (
        [None, job("Created"), {"metadata": {**NEW["metadata"], "uid": "b"}}, job("Created", uid="b")],
        {"trainyard_jobs_deleted": 1, "trainyard_jobs_created": 1},
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_each_change_is_counted_once_under_both_names(name: str) -> None:
    versions, expected = STORIES[name]
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, (kinds.TFJOB,))
    for before, after in pairwise(versions):
        metrics.observe_change(TFJOB, before, after)
    for counter in COUNTERS:
        value = expected.get(counter, 0)
        assert registry.get_sample_value(f"{counter}_total", OURS) == value, counter
        assert registry.get_sample_value(f"{ALIASES[counter]}_total", THEIRS) == value


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([job("Created"), job("Created", restarts=2)], {"program": 2}),
        ([job("Created", restarts=2), job("Created")], {}),
        (
            [
                job("Created", restarts=1),
                job("Created", restarts=1, restartCauses={"program": 1, "node-lost": 1}),
                job("Created", restarts=2, restartCauses={"program": 2, "node-lost": 2, "eviction": 1}),
            ],
            {"program": 1, "node-lost": 2, "eviction": 1},
        ),
    ],
    ids=["after failures", "a status that lost them", "after disruptions"],
)
def test_restarts_are_counted_by_cause(versions: list[Json], expected: dict[str, int]) -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, (kinds.TFJOB,))
    for before, after in pairwise(versions):
        metrics.observe_change(TFJOB, before, after)
    for cause in CAUSES:
        value = registry.get_sample_value("trainyard_job_restarts_total", {**OURS, "cause": cause})
        assert value == expected.get(cause, 0), cause
    assert registry.get_sample_value("training_operator_jobs_restarted_total", THEIRS) == expected.get("program", 0)


def test_the_time_to_running_is_that_of_the_first_run() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, (kinds.TFJOB,))
    started = "2026-01-01T00:00:00Z"
    versions = [
        NEW,
        job("Created", startTime=started),
        job("Created", "Running", startTime=started, hasRun=True),
        job("Created", "Suspended", startTime=started, hasRun=True),
        job("Created", "Running", startTime=started, hasRun=True),
    ]
    for before, after in pairwise(versions):
        metrics.observe_change(TFJOB, before, after)
    name = "trainyard_job_time_to_running_seconds"
    assert registry.get_sample_value(f"{name}_count", OURS) == 1
    assert registry.get_sample_value(f"{name}_sum", OURS) == 90


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TFJob", "tensorflow"),
        ("PyTorchJob", "pytorch"),
        ("MPIJob", "mpi"),
        ("XGBoostJob", "xgboost"),
        ("PaddleJob", "paddle"),
        ("JAXJob", "jax"),
    ],
)
def test_metrics_name_frameworks_as_the_training_operator_does(kind: str, name: str) -> None:
    assert framework(GVK("kubeflow.org", "v1", kind, f"{kind.lower()}s")) == name


def test_the_series_of_a_namespace_without_jobs_go_after_an_hour() -> None:
    """A CI has a namespace for each run: the operator would keep the series of all of them."""
    now, registry = [0.0], CollectorRegistry()
    metrics = JobMetrics(registry, kinds.ALL, lambda: now[0])
    operator: Any = SimpleNamespace(jobs=lambda gvk: [], queue=WorkQueue())

    def samples() -> list[str]:
        list(metrics.collect(operator))
        return [sample.name for metric in registry.collect() for sample in metric.samples]

    for version in (TFJOB, kinds.KUBEFLOW_TFJOB.gvk):  # they share the label framework
        metrics.observe_change(version, NEW, job("Created"))
    metrics.observe_change(TFJOB, job("Created"), None)
    now[0] += FORGET_SECONDS
    assert samples(), "the deletion can still be scraped"
    now[0] += 1
    assert not samples()
    metrics.observe_change(TFJOB, NEW, job("Created"))
    assert registry.get_sample_value("trainyard_jobs_created_total", OURS) == 1, "it begins anew"
