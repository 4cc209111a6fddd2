from __future__ import annotations

from collections import Counter

from trainyard.objects import Json
from trainyard.workloads.placement import decide
from trainyard.workloads.writes import Bind, Merge


def node(name: str, ready: str = "True", **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def pod(**spec: object) -> Json:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u-p"}, "spec": spec, "status": {"phase": "Pending"}}


def test_a_pod_goes_to_the_ready_node_with_the_fewest_pods() -> None:
    nodes = [node("a"), node("b"), node("c", "False"), node("d", unschedulable=True)]
    assert decide(pod(), nodes, Counter(a=2, b=1), 0.0).writes == (Bind("n", "p", "u-p", "b"),)


def test_without_a_ready_node_the_pod_says_so_once() -> None:
    waiting = pod()
    (write,) = decide(waiting, [node("a", "False")], Counter(), 0.0).writes
    assert isinstance(write, Merge) and write.subresource == "status"
    (said,) = write.body["status"]["conditions"]
    assert (said["type"], said["status"], said["reason"]) == ("PodScheduled", "False", "Unschedulable")
    waiting["status"] |= write.body["status"]
    assert decide(waiting, [], Counter(), 5.0).writes == ()
    assert decide(waiting, [node("a")], Counter(), 5.0).writes


def test_pods_that_are_placed_gated_going_or_for_another_scheduler_are_left_alone() -> None:
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    others = [pod(nodeName="a"), pod(schedulingGates=[{"name": "x"}]), pod(schedulerName="mine"), going]
    assert [decide(one, [node("a")], Counter(), 0.0).writes for one in others] == [()] * 4
