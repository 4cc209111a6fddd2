"""Messages of conditions: bounded for any number of replicas, and true for each kind."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import elasticjob, kubeflow_job, sample
from trainyard.core import Config, Kind, Plan
from trainyard.kinds import ELASTICJOB, JAXJOB, KUBEFLOW_TFJOB, PADDLEJOB, TFJOB
from trainyard.objects import Json, Ref, find_condition, format_time


def running(kind: Kind, job: Json, config: Config | None = None) -> SimulatedJob:
    """A job with all its pods running."""
    simulated = simulate(kind, job, config or Config())
    simulated.run()
    simulated.settle()
    return simulated


def condition(plan: Plan, name: str) -> Json:
    return find_condition(plan.status["conditions"], name) or {}


def terminating(simulated: SimulatedJob, pod: str, seconds: float) -> None:
    """The grace period of the pod ended so many seconds ago."""
    simulated.get("Pod", pod)["metadata"]["deletionTimestamp"] = format_time(simulated.now - seconds)


def test_the_message_of_a_restart_does_not_grow_with_the_replicas() -> None:
    lengths = []
    for workers in (10, 100):
        replica_set = {"replicas": workers, "restartPolicy": "ExitCode"}
        simulated = running(JAXJOB, kubeflow_job("JAXJob", Worker=replica_set))
        for name in simulated.names("Pod"):
            simulated.end(name, 134, message="x" * 400)
        lengths.append(len(condition(simulated.look(), "Restarting")["message"]))
    assert lengths[1] < lengths[0] + 50 < 5000


def test_the_condition_names_a_terminating_pod_that_has_the_name_of_its_replica() -> None:
    for kind, job in ((ELASTICJOB, elasticjob(2)), (KUBEFLOW_TFJOB, sample("TFJob"))):
        simulated = running(kind, job)
        pod = simulated.names("Pod")[0]
        terminating(simulated, pod, 29)
        assert not condition(simulated.look(), "Blocked").get("message")
        assert simulated.look().requeue_at == simulated.now + 1
        terminating(simulated, pod, 31)
        blocked = condition(simulated.look(), "Blocked")
        assert blocked["reason"] == "PodTerminating" and f"Pod {pod} " in blocked["message"]


def test_a_pod_of_a_lost_node_is_deleted_by_force_also_without_its_batch_job() -> None:
    simulated = running(TFJOB, sample("TfJob"), Config(node_lost_timeout=30))
    batch_job = simulated.names("Job")[0]
    (pod,) = simulated.pods(batch_job)
    terminating(simulated, pod, 31)
    del simulated.objects[Ref("Job", batch_job)]
    (delete,) = simulated.look().deletes
    assert delete.name == pod and delete.grace_period_seconds == 0


@pytest.mark.parametrize(
    ("kind", "job"),
    [
        (KUBEFLOW_TFJOB, kubeflow_job("TFJob", Chief={"replicas": 0}, Worker={"replicas": 2})),
        (PADDLEJOB, kubeflow_job("PaddleJob", Master={"replicas": 0}, Worker={"replicas": 2})),
    ],
)
def test_a_role_without_replicas_does_not_decide_about_the_job(kind: Kind, job: Json) -> None:
    simulated = running(kind, job)
    assert condition(simulated.look(), "Running")["status"] == "True"
    for name in simulated.names("Pod"):
        simulated.end(name, 0)
    simulated.settle()
    assert condition(simulated.look(), "Succeeded")["status"] == "True"


def test_a_suspended_job_does_not_restart_a_replica_that_has_just_failed() -> None:
    simulated = running(KUBEFLOW_TFJOB, sample("TFJob"))
    simulated.end(simulated.names("Pod")[0], 137)
    simulated.edit(suspend=True)
    plan = simulated.look()
    assert condition(plan, "Suspended")["status"] == "True"
    assert condition(plan, "Restarting").get("status") != "True"
