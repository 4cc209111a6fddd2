"""Pods that cannot start are events of their job, as of the Training Operator: `kubectl describe` shows the cause."""

from __future__ import annotations

import pytest

from tests.model.simulated_job import simulate
from tests.support.samples import sample, trainjob
from trainyard import kinds
from trainyard.core import Event, unwarned
from trainyard.objects import Json, Ref

CONDITION: Json = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
WAITING: Json = {"reason": "ImagePullBackOff", "message": "no such image"}


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        ({"conditions": [CONDITION]}, "Unschedulable", "Error pod example-worker-0 condition message: 0/1 nodes"),
        (
            {"containerStatuses": [{"name": "pytorch", "state": {"waiting": WAITING}}]},
            "ImagePullBackOff",
            "Error pod example-worker-0 container pytorch waiting message: no such image",
        ),
        ({"containerStatuses": [{"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}]}, "", ""),
        ({}, "", ""),
    ],
)
def test_a_pod_that_cannot_start_is_a_warning_of_its_job(status: Json, reason: str, text: str) -> None:
    simulated = simulate(kinds.PYTORCHJOB, sample("PyTorchJob"))
    simulated.get("Pod", "example-worker-0")["status"] = {"phase": "Pending", **status}
    warnings = simulated.look().pod_warnings
    assert [(event.type, event.reason, event.message) for event in warnings] == (
        [("Warning", reason, text)] if reason else []
    )


@pytest.mark.parametrize(("reason", "warned"), [("OOMKilled", True), ("Error", False)])
def test_a_container_that_ran_out_of_memory_and_was_restarted_in_place_is_a_warning(reason: str, warned: bool) -> None:
    simulated = simulate(kinds.TRAINJOB, trainjob())
    simulated.run()
    simulated.settle()
    pod = simulated.names("Pod")[1]
    simulated.restart(pod, 137)
    simulated.get("Pod", pod)["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = reason
    text = "node 1: container node exited with code 137 (OOMKilled); restarted in place"
    event = Event("Warning", "OOMKilled", text, Ref("Pod", pod))
    assert simulated.look().pod_warnings == ((event,) if warned else ())


def test_each_pod_is_warned_of_once_and_of_a_thousand_pods_four() -> None:
    warnings = [Event("Warning", "Unschedulable", f"Error pod p{n}", Ref("Pod", f"p{n}")) for n in range(1000)]
    other = Event("Warning", "ErrImagePull", "Error pod p0", Ref("Pod", "p0"))
    new = unwarned(warnings, set())
    assert new == warnings[:4]
    warned = {(event.reason, event.regarding) for event in new}
    assert unwarned([*warnings, other], warned) == [other]
