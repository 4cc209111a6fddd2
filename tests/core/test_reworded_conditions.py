"""What a kind may reword, the reasons and messages of its conditions, decides nothing."""

from __future__ import annotations

from tests.model.simulated_job import simulate
from tests.support.builders import replicas, tfjob
from trainyard.core import Kind
from trainyard.kinds import TFJOB
from trainyard.objects import find_condition
from trainyard.objects.structs import replace


def reworded() -> Kind:
    """A TfJob that renames the reason of every condition, as the kinds of kubeflow.org/v1 do."""
    shape = replace(
        TFJOB.status, condition_message=lambda job, update, replicas: replace(update, reason=f"TfJob{update.type}")
    )
    return replace(TFJOB, status=shape)


def test_running_children_are_stopped_even_if_the_reason_of_failed_is_reworded() -> None:
    """Found by the issue: the clean-up looked for DeadlineExceeded in the condition, and left everything running."""
    simulated = simulate(reworded(), tfjob(replicas("MASTER"), replicas("WORKER"), activeDeadlineSeconds=30))
    simulated.run()
    simulated.settle()
    simulated.now += 60
    simulated.job = {
        **simulated.job,
        "status": simulated.look().status,
    }  # the operator is killed before it sends the deletes
    failed = find_condition(simulated.job["status"]["conditions"], "Failed")
    assert failed and failed["reason"] == "TfJobFailed"
    assert {delete.name for delete in simulated.look().deletes} == {"master-76no-0", "worker-76no-0"}


def test_a_job_has_run_although_its_running_condition_is_gone() -> None:
    simulated = simulate(reworded(), tfjob(replicas("MASTER")))
    simulated.run()
    simulated.settle()
    status = simulated.job["status"]
    rest = [entry for entry in status["conditions"] if entry["type"] != "Running"]
    simulated.job = {**simulated.job, "status": {**status, "conditions": rest}}
    assert simulated.look().status["hasRun"] is True
