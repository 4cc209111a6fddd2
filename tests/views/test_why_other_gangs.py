"""`why` for gangs of Volcano and of scheduler-plugins, which write into each member that it is unschedulable, whatever
its gang waits for. The texts are those of Volcano 1.15.1 and scheduler-plugins 0.33.5."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.simulated_job import NOW, SimulatedJob
from tests.support.samples import kubeflow_job
from tests.views.why_values import everything
from trainyard.core import Config, Refusal
from trainyard.kinds import JAXJOB
from trainyard.objects import Json, Ref, find_condition, format_time
from trainyard.views.diagnosis import Facts, why
from trainyard.views.job_details import child_state

SIBLINGS = (
    "pre-filter pod example-worker-0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3"
)
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available"
OPTIMISTIC = "PodGroup default/example gets rejected due to Pod is unschedulable: optimistic rejection in PostFilter"
GAP = "resource gap: map[cpu:1]"
TIMEOUT = "rejected due to timeout after waiting 10s at plugin Coscheduling"
READY = "pod group is ready, 3 Pending, 3 minAvailable; Pending: 3 Unschedulable"
POSSIBLE = (
    "pod group is not ready, 3 Pending, 3 minAvailable; can possibly be assigned to n1, once minAvailable is satisfied"
)
RELEASED = "can possibly be assigned to n1, once resource is released"


def waiting(scheduler: str, *messages: str, **spec: Any) -> SimulatedJob:
    """A job of three workers in which the scheduler has written these messages, one for each pod that exists."""
    job = kubeflow_job("JAXJob", Worker=3, **spec)
    simulated = SimulatedJob(JAXJOB, job, config=Config(gang_scheduler=scheduler))
    simulated.job["metadata"]["creationTimestamp"] = format_time(NOW)
    simulated.settle()
    simulated.get("PodGroup", "example")["status"] = {"phase": "Inqueue"}
    simulated.settle()
    for index in range(3):
        ref = Ref("Pod", f"example-worker-{index}")
        if index >= len(messages):
            del simulated.objects[ref]
            continue
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": messages[index]}
        simulated.objects[ref]["status"] = {"phase": "Pending", "conditions": [condition]}
    return simulated


def answer(simulated: SimulatedJob, *events: Json, later: float = 60) -> str:
    pods = tuple(obj for ref, obj in simulated.objects.items() if ref.kind == "Pod")
    children = tuple(obj for ref, obj in simulated.objects.items() if ref.kind != "Pod")
    return everything(why(Facts(JAXJOB, simulated.job, NOW + later, pods, children=children, events=events)))


CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "too few members exist": (
        "coscheduler",
        (SIBLINGS, SIBLINGS),
        (
            "its scheduler holds its pod: 2 of the 3 members of its gang exist",
            "spec.minMember",
            "current pods number: 2",
        ),
    ),
    "a member fits nowhere": (
        "coscheduler",
        (OPTIMISTIC, OPTIMISTIC, NO_ROOM),
        (
            "its gang waits for room for all 3 pods",
            f"example-worker-2: {NO_ROOM}",
            "ask for less in resources.requests",
        ),
    ),
    "minResources are more than is free": (
        "coscheduler",
        (GAP, GAP, GAP),
        ("its gang waits for room for all 3 pods", GAP, "schedulingPolicy.minResources"),
    ),
    "the others took too long": (
        "coscheduler",
        (TIMEOUT, TIMEOUT, TIMEOUT),
        ("its gang waits", "scheduleTimeoutSeconds"),
    ),
    "Volcano has room for some": (
        "volcano",
        (POSSIBLE, POSSIBLE, NO_ROOM),
        ("its gang waits for room for all 3 pods", f"example-worker-2: {NO_ROOM}"),
    ),
    "Volcano has no room": ("volcano", (READY, READY, READY), ("its gang waits for room for all 3 pods", "add a node")),
    "Volcano waits for pods that end": (
        "volcano",
        (RELEASED, RELEASED, RELEASED),
        ("its gang waits", "wait: pods that are ending hold the room"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_gang_waits_for_is_said(name: str) -> None:
    scheduler, messages, texts = CASES[name]
    text = answer(waiting(scheduler, *messages))
    assert not [part for part in texts if part not in text], text
    assert "no node fits its pod" not in text and "mend what the message names" not in text, text


def test_the_queue_and_the_cause_of_volcano_are_said() -> None:
    """Volcano writes the cause into events of the PodGroup alone."""
    simulated = SimulatedJob(JAXJOB, kubeflow_job("JAXJob", Worker=3), config=Config(gang_scheduler="volcano"))
    simulated.job["metadata"]["creationTimestamp"] = format_time(NOW)
    simulated.settle()
    group = simulated.get("PodGroup", "example")
    group["spec"]["queue"] = "team"
    group["status"] = {"phase": "Pending"}
    assert child_state(group) == "Pending"
    assert find_condition(simulated.job["status"]["conditions"], "Blocked") is None
    assert simulated.look().requeue_at == NOW + 30
    simulated.now += 30
    simulated.settle()
    event = {
        "involvedObject": {"kind": "PodGroup", "uid": group["metadata"]["uid"]},
        "reason": "Unschedulable",
        "message": "queue resource quota insufficient: insufficient cpu",
    }
    text = answer(simulated, event)
    assert "so no pod is created for it" in text and "queue: team" in text, text
    assert "event Unschedulable: queue resource quota insufficient: insufficient cpu" in text, text


def test_a_pod_group_that_a_webhook_denies_is_a_matter_of_the_scheduling_policy() -> None:
    simulated = SimulatedJob(JAXJOB, kubeflow_job("JAXJob", Worker=3), config=Config(gang_scheduler="volcano"))
    simulated.job["metadata"]["creationTimestamp"] = format_time(NOW)
    simulated.settle()
    ref = Ref("PodGroup", "example")
    del simulated.objects[ref]
    text = 'admission webhook "validatepodgroup.volcano.sh" denied the request: queue is closed'
    simulated.refused = {ref: Refusal(403, "Forbidden", text, simulated.now, policy="AdmissionWebhook")}
    simulated.settle()
    assert "mend runPolicy.schedulingPolicy of the job, such as its queue" in answer(simulated)
    simulated.refused = {ref: Refusal(422, "Invalid", "spec.minMember: Invalid value: 0", simulated.now)}
    simulated.settle()
    text = answer(simulated)
    assert "the API server refused PodGroup example" in text and "mend runPolicy.schedulingPolicy of the job" in text


def test_a_deadline_of_a_gang_that_never_ran_says_so() -> None:
    simulated = waiting("coscheduler", GAP, GAP, GAP, run_policy={"activeDeadlineSeconds": 60})
    simulated.now += 61
    failed = find_condition(simulated.settle()["conditions"], "Failed")
    assert failed is not None and "no replica has run within activeDeadlineSeconds (60 s)" in failed["message"]


def test_a_pod_that_a_preemption_took_away_is_no_matter_of_its_logs() -> None:
    simulated = SimulatedJob(JAXJOB, kubeflow_job("JAXJob", Worker=3), config=Config(gang_scheduler="coscheduler"))
    simulated.job["metadata"]["creationTimestamp"] = format_time(NOW)
    simulated.settle()
    simulated.run()
    simulated.settle()
    pod = simulated.get("Pod", "example-worker-0")
    pod["metadata"]["deletionTimestamp"] = format_time(NOW + 30)
    pod["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}
    ]
    simulated.step()
    event = {
        "involvedObject": {"kind": "Pod", "uid": pod["metadata"]["uid"]},
        "reason": "Preempted",
        "message": "Preempted by pod 1234 on node n1",
    }
    text = answer(simulated, event, later=1)
    assert "Pod example-worker-0 was deleted while it ran (PreemptionByScheduler: preempted)" in text, text
    assert "event Preempted: Preempted by pod 1234 on node n1" in text and "its logs say why" not in text, text
