from __future__ import annotations

import time
from collections import Counter
from typing import cast

import pytest

from trainyard.client import ApiClient, NotFound
from trainyard.core import Event
from trainyard.objects import GVK, Json
from trainyard.objects.writes import Patch
from trainyard.workloads.decision_executor import DecisionExecutor
from trainyard.workloads.scheduler import claim_names, decide
from trainyard.workloads.writes import Bind, Decision


def node(name: str, ready: str = "True", **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def pod(**spec: object) -> Json:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u-p"}, "spec": spec, "status": {"phase": "Pending"}}


def test_a_pod_is_bound_to_the_ready_node_with_the_fewest_pods() -> None:
    nodes = [node("a"), node("b"), node("c", "False"), node("d", unschedulable=True)]
    assert decide(pod(), nodes, Counter(a=2, b=1), 0.0).writes == (Bind("n", "p", "u-p", "b"),)


def test_without_a_ready_node_the_pod_is_marked_unschedulable_once() -> None:
    waiting = pod()
    (write,) = decide(waiting, [node("a", "False")], Counter(), 0.0).writes
    assert isinstance(write, Patch) and write.subresource == "status"
    (condition,) = write.body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    waiting["status"] |= write.body["status"]
    assert decide(waiting, [], Counter(), 5.0).writes == ()
    assert decide(waiting, [node("a")], Counter(), 5.0).writes


def test_a_pod_that_names_another_scheduler_is_placed() -> None:
    """One machine has no other scheduler: the pod would wait for ever."""
    assert decide(pod(schedulerName="volcano"), [node("a")], Counter(), 0.0).writes == (Bind("n", "p", "u-p", "a"),)


def test_pods_that_are_placed_gated_or_going_are_left_alone() -> None:
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    not_ours = [pod(nodeName="a"), pod(schedulingGates=[{"name": "x"}]), going]
    assert [decide(other, [node("a")], Counter(), 0.0).writes for other in not_ours] == [()] * 3


def with_claim(name: str) -> Json:
    return pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}, {"name": "w", "emptyDir": {}}])


def test_a_pod_with_a_missing_claim_waits_with_the_schedulers_message() -> None:
    waiting = with_claim("data")
    assert claim_names(waiting) == ["data"]
    decision = decide(waiting, [node("a")], Counter(), 0.0, {"data": None})
    (write,) = decision.writes
    assert isinstance(write, Patch)
    (scheduled,) = write.body["status"]["conditions"]
    text = (
        '0/1 nodes are available: persistentvolumeclaim "data" not found. '
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert (scheduled["status"], scheduled["reason"], scheduled["message"]) == ("False", "Unschedulable", text)
    assert decision.events == (Event("Warning", "FailedScheduling", text),)
    waiting["status"] |= write.body["status"]
    assert decide(waiting, [node("a")], Counter(), 5.0, {"data": None}) == Decision()
    claim: Json = {"metadata": {"name": "data"}}
    placed = decide(waiting, [node("a")], Counter(), 5.0, {"data": claim})
    assert placed.writes == (Bind("n", "p", "u-p", "a"),)
    assert placed.events == (Event("Normal", "Scheduled", "Successfully assigned n/p to a"),)
    claim["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    (write,) = decide(with_claim("data"), [node("a")], Counter(), 5.0, {"data": claim}).writes
    assert isinstance(write, Patch) and "is being deleted" in write.body["status"]["conditions"][0]["message"]


async def test_a_pod_whose_end_is_seen_before_the_answer_to_its_binding_is_not_found() -> None:
    """The scheduler reported a KeyError instead: found by the random histories."""

    class Api:
        async def create(self, gvk: GVK, namespace: str, obj: Json, subresource: str) -> Json:
            executor.assumed.pop("u-p")  # as the watch of pods does
            raise NotFound(404, "NotFound", 'pods "p" not found')

    executor = DecisionExecutor(cast("ApiClient", Api()), {}, time.time)
    with pytest.raises(NotFound):
        await executor.apply(Bind("n", "p", "u-p", "a"), pod())
    assert executor.assumed == {}
