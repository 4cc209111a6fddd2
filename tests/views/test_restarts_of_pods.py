"""The restarts of a pod are the same number for the operator, for the commands and in the history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.simulated_job import simulate
from tests.support.samples import kubeflow_job
from trainyard import kinds
from trainyard.objects import Json
from trainyard.views.job_view import JobView
from trainyard.views.recorded import pod_entry


def container(name: str, restarts: int, **fields: Any) -> Json:
    return {"name": name, "restartCount": restarts, "state": {"running": {}}, **fields}


KILLED_WITH_ITS_NODE = {"lastState": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
PODS: dict[str, tuple[list[Json], list[Json], int]] = {
    # init containers, containers, restarts
    "none": ([], [container("tensorflow", 0)], 0),
    "main container": ([], [container("tensorflow", 2)], 2),
    "a helper is restarted": ([], [container("tensorflow", 1), container("helper", 5)], 1),
    "all containers are restarted": ([], [container("tensorflow", 2), container("helper", 2)], 2),
    "without the main container": ([], [container("other", 3), container("helper", 1)], 3),
    "init container": ([container("prepare", 4)], [container("tensorflow", 0)], 4),
    "native sidecar": ([container("sidecar", 4)], [container("tensorflow", 1)], 1),
    "killed with its node": ([], [container("tensorflow", 1, **KILLED_WITH_ITS_NODE)], 1),
}


@pytest.mark.parametrize(("init", "containers", "restarts"), PODS.values(), ids=PODS)
def test_one_number_for_the_operator_the_commands_and_the_history(
    init: list[Json], containers: list[Json], restarts: int
) -> None:
    job = kubeflow_job("TFJob", Worker={"replicas": 1, "restartPolicy": "OnFailure"})
    simulated = simulate(kinds.KUBEFLOW_TFJOB, job)
    simulated.run()
    pod = simulated.get("Pod", simulated.pods("example-worker-0")[0])
    pod["spec"]["initContainers"] = [
        {"name": entry["name"], **({"restartPolicy": "Always"} if entry["name"] == "sidecar" else {})} for entry in init
    ]
    pod["status"] |= {"initContainerStatuses": init, "containerStatuses": containers}
    status = simulated.settle()
    (slot,) = JobView.of([simulated.job], [pod], simulated.now).slots(simulated.job["metadata"]["uid"])
    assert (status["restarts"], slot.restarts, pod_entry(pod, job=simulated.job)["restarts"]) == (restarts,) * 3
