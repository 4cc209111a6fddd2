"""The state of a job agrees with its conditions and counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard.core import Kind
from trainyard.kinds.definitions.crds import crd, warnings
from trainyard.objects import Json, is_condition_true
from trainyard.objects.labels import OWNER

ROOT = Path(__file__).parents[2]
every_kind = pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")


def runs(kind: Kind) -> SimulatedJob:
    simulated = simulate(kind, job_of(kind))
    simulated.run()
    simulated.settle()
    return simulated


def job_of(kind: Kind) -> Json:
    job = sample(kind.gvk.kind)
    return {**job, "apiVersion": kind.gvk.api_version}


@every_kind
def test_a_job_without_a_running_replica_is_not_running(kind: Kind) -> None:
    simulated = runs(kind)
    assert simulated.job["status"]["state"] == "Running"
    for name in simulated.names("Pod"):
        simulated.drop(simulated.get("Pod", name)["metadata"]["uid"])
    status = simulated.settle()
    assert status["state"] == "Starting" and status["ready"].startswith("0/")
    assert not is_condition_true(status["conditions"], "Running")


@every_kind
def test_the_state_of_a_suspended_job_is_suspended(kind: Kind) -> None:
    simulated = runs(kind)
    simulated.edit(suspend=True)
    status = simulated.settle()
    assert status["state"] == "Suspended" and is_condition_true(status["conditions"], "Suspended")


@every_kind
def test_restarts_are_counted_from_none(kind: Kind) -> None:
    assert simulate(kind, job_of(kind)).job["status"]["restarts"] == 0


@every_kind
def test_an_unknown_managed_by_is_a_warning(kind: Kind) -> None:
    job = job_of(kind)
    for manager, count in {
        "": 0,
        "trainyard.dev/operator": 0,
        "kueue.x-k8s.io/multikueue": 0,
        "example.com/x": 1,
    }.items():
        simulated = SimulatedJob(kind, job)
        simulated.edit(managedBy=manager)
        problems = warnings(kind, simulated.job)
        assert sum("managedBy" in problem.path for problem in problems) == count, manager


@every_kind
def test_the_message_of_blocked_is_a_column(kind: Kind) -> None:
    for version in crd(kind)["spec"]["versions"]:
        assert '@.type=="Blocked"' in str(version["additionalPrinterColumns"])


@every_kind
def test_batch_jobs_carry_the_labels_of_the_job_and_their_own_win(kind: Kind) -> None:
    job = job_of(kind)
    labels = {"team": "vision", OWNER: "another", "kueue.x-k8s.io/queue-name": "queue"}
    simulated = simulate(kind, {**job, "metadata": {**job["metadata"], "labels": labels}})
    for name in simulated.names("Job"):
        child_labels = simulated.get("Job", name)["metadata"]["labels"]
        assert (child_labels["team"], child_labels[OWNER]) == ("vision", simulated.job["metadata"]["uid"])
        assert "kueue.x-k8s.io/queue-name" not in child_labels


def test_the_oldest_supported_kubernetes_is_defined_once() -> None:
    chart = yaml.safe_load((ROOT / "charts/trainyard/Chart.yaml").read_text())["kubeVersion"]
    page = re.search(r"Kubernetes (\d+\.\d+) or newer", (ROOT / "docs/install.md").read_text())
    assert page is not None and chart == f">={page[1]}.0-0"
