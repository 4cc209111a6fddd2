"""Objects that another client deletes are created again: alone, or with the gang."""

from __future__ import annotations

from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import mxjob, sample
from trainyard import kinds
from trainyard.objects import Ref, find_condition
from trainyard.objects.labels import ATTEMPT


def attempt_labels(simulated: SimulatedJob) -> set[str]:
    return {simulated.get("Job", name)["metadata"]["labels"][ATTEMPT] for name in simulated.names("Job")}


def drop_pod(simulated: SimulatedJob) -> str:
    """The pod that has no Job any more."""
    (pod_name,) = [name for name in simulated.names("Pod") if name.startswith("example-worker-1kkf-1-")]
    return pod_name


def test_a_gang_restarts_when_a_batch_job_was_deleted_and_no_failure_is_counted() -> None:
    """MXNet does not take a lost replica back (S33)."""
    simulated = simulate(kinds.MXJOB, mxjob())
    simulated.run()
    simulated.settle()
    simulated.objects.pop(Ref("Job", "example-worker-1kkf-1"))  # its pod is about to follow
    condition = find_condition(simulated.step().status["conditions"], "Restarting") or {}
    assert condition["status"] == "True" and "the batch Job of WORKER 1 was deleted" in condition["message"]
    simulated.objects = {ref: child for ref, child in simulated.objects.items() if ref.name != drop_pod(simulated)}
    status = simulated.settle()
    assert attempt_labels(simulated) == {"1"} and len(simulated.names("Job")) == 4 and not status["restarts"]


def test_a_tf_job_that_loses_a_job_by_hand_makes_that_one_again_alone() -> None:
    simulated = simulate(kinds.TFJOB, sample("TfJob"))
    simulated.run()
    simulated.settle()
    simulated.lose("Job", "worker-76no-0")
    simulated.settle()
    assert attempt_labels(simulated) == {"0"} and "worker-76no-0" in simulated.names("Job")


def test_a_gang_member_whose_job_and_pod_are_gone_is_created_again_alone() -> None:
    """No object shows that it existed before: it may as well be the first attempt, which a quota delayed."""
    simulated = simulate(kinds.MXJOB, mxjob())
    simulated.objects.pop(Ref("Job", "example-worker-1kkf-1"))
    simulated.settle()
    assert attempt_labels(simulated) == {"0"} and len(simulated.names("Job")) == 4
