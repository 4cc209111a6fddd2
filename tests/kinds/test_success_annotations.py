"""The annotations of jobs of `kubeflow.org/v1` about their success, where other policies and roles limit them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kinds.test_kubeflow_v1 import started
from tests.model.simulated_job import SimulatedJob
from tests.support.samples import kubeflow_job
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds import KUBEFLOW_TFJOB, MPIJOB, PYTORCHJOB
from trainyard.kinds.kubeflow_v1.lifecycle import ALL_REPLICAS, SUCCESS_GRACE, SUCCESS_POLICY
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json, is_condition_true


def job_of(kind: Kind, roles: dict[str, int], annotations: dict[str, str], **policies: object) -> Json:
    sets: Any = {role: {"replicas": replicas, "restartPolicy": "Never"} for role, replicas in roles.items()}
    job = kubeflow_job(kind.gvk.kind, run_policy={"cleanPodPolicy": "Running", **policies}, **sets)
    job["metadata"]["annotations"] = annotations
    return {**job, "apiVersion": kind.gvk.api_version}


@pytest.mark.parametrize("name", [SUCCESS_POLICY, SUCCESS_GRACE])
@pytest.mark.parametrize(
    ("kind", "roles", "leader"),
    [
        (MPIJOB, {"Launcher": 1, "Worker": 2}, "example-launcher"),
        (MPIJOB_V2BETA1, {"Launcher": 1, "Worker": 2}, "example-launcher"),
        (KUBEFLOW_TFJOB, {"Chief": 1, "Worker": 1, "PS": 1}, "example-chief-0"),
    ],
    ids=["MPIJob", "MPIJob-v2beta1", "TFJob"],
)
def test_a_job_does_not_wait_for_replicas_that_do_not_end_by_themselves(
    kind: Kind, roles: dict[str, int], leader: str, name: str
) -> None:
    annotations = {name: ALL_REPLICAS if name == SUCCESS_POLICY else "600"}
    job = job_of(kind, roles, annotations)
    simulated = started(kind, job)
    simulated.end(leader, 0)
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
    (warning,) = kinds.warnings(kind, job)
    assert warning.path == f"metadata.annotations[{name}]"
    assert "has no effect" in warning.text


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        (SUCCESS_POLICY, ALL_REPLICAS, ""),
        (SUCCESS_POLICY, "allreplicas", "write AllReplicas"),
        (SUCCESS_GRACE, "30", ""),
        (SUCCESS_GRACE, "30s", "write whole seconds, at most 3600"),
        (SUCCESS_GRACE, "3601", "write whole seconds, at most 3600"),
    ],
)
def test_a_value_that_is_not_used_as_it_stands_is_a_warning(name: str, value: str, fix: str) -> None:
    warnings = kinds.warnings(PYTORCHJOB, job_of(PYTORCHJOB, {"Master": 1, "Worker": 1}, {name: value}))
    assert [warning.path for warning in warnings] == [f"metadata.annotations[{name}]"] * bool(fix)
    assert all(fix in warning.text for warning in warnings)


def in_grace(**policies: object) -> SimulatedJob:
    """A PyTorchJob whose master has ended with 0 after 50 seconds, and whose worker may run 600 seconds longer."""
    job = job_of(PYTORCHJOB, {"Master": 1, "Worker": 1}, {SUCCESS_GRACE: "600"}, **policies)
    simulated = started(PYTORCHJOB, job)
    simulated.now += 50
    simulated.end("example-master-0", 0)
    simulated.settle()
    return simulated


def test_a_job_of_which_only_a_worker_still_runs_is_running() -> None:
    conditions = in_grace().job["status"]["conditions"]
    assert is_condition_true(conditions, "Running")
    assert conditions[-1]["type"] == "Running"


def test_suspension_ends_the_grace() -> None:
    simulated = in_grace()
    simulated.edit(suspend=True)
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
    assert simulated.names("Pod") == ["example-master-0"]


def test_the_deadline_ends_the_grace() -> None:
    simulated = in_grace(activeDeadlineSeconds=60)
    assert simulated.look().requeue_at == simulated.now + 10
    simulated.now += 10
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
    assert simulated.names("Pod") == ["example-master-0"]


@pytest.mark.parametrize(("ahead", "has_grace"), [(2, True), (601, False)])
def test_a_clock_of_a_node_that_is_a_little_ahead_leaves_the_grace(ahead: int, has_grace: bool) -> None:
    simulated = in_grace()
    simulated.now -= ahead
    assert (simulated.look().requeue_at is not None) is has_grace
    simulated.settle()
    assert is_condition_true(simulated.job["status"]["conditions"], "Succeeded") is not has_grace


def test_a_succeeded_replica_whose_pod_is_deleted_runs_again() -> None:
    """The status has no list of replicas (docs/run-a-script.md)."""
    simulated = in_grace()
    simulated.lose("Pod", "example-master-0")
    simulated.settle()
    assert set(simulated.names("Pod")) == {"example-master-0", "example-worker-0"}
    assert not is_condition_true(simulated.job["status"]["conditions"], "Succeeded")
