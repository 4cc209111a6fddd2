"""`why` for gangs of kube-scheduler itself, which holds the pods of one without a condition and without an event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.simulated_job import NOW, SimulatedJob
from tests.support.samples import kubeflow_job
from tests.views.why_values import everything
from trainyard.core import Config
from trainyard.kinds import JAXJOB
from trainyard.objects import Json, Ref, format_time
from trainyard.views.diagnosis import BLOCK, FINE, Facts, why

GROUP_TEXT = "pod group is unschedulable, minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"


PLACEMENTS = (
    "pod group is unschedulable, 0/2 placements are available, first placement status: minCount (3) cannot be "
    "satisfied: 0 scheduled, 3 remaining"
)
NODES: tuple[Json, ...] = tuple(
    {
        "metadata": {"name": f"node-{index}", "labels": {"rack": rack, "row": "first"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    for index, rack in enumerate(("west", "west", "east"))
)


def _pending() -> SimulatedJob:
    simulated = SimulatedJob(JAXJOB, kubeflow_job("JAXJob", Worker=3), config=Config(gang_scheduler="native"))
    simulated.settle()
    return simulated


def _running() -> SimulatedJob:
    simulated = _pending()
    simulated.run()
    simulated.settle()
    for index, pod in enumerate(_pods(simulated)):
        pod["spec"]["nodeName"] = f"node-{index}"
    return simulated


def _pods(simulated: SimulatedJob) -> list[Json]:
    return [obj for ref, obj in simulated.objects.items() if ref.kind == "Pod"]


def _without(kind: str, name: str) -> SimulatedJob:
    simulated = _pending()
    del simulated.objects[Ref(kind, name)]
    return simulated


def _with_a_gate() -> SimulatedJob:
    simulated = _pending()
    simulated.get("Pod", "example-worker-1")["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    return simulated


def _unschedulable(*texts: str) -> SimulatedJob:
    simulated = _pending()
    own = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    for index, text in enumerate(texts or (GROUP_TEXT, GROUP_TEXT, own)):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        simulated.get("Pod", f"example-worker-{index}")["status"] = {"phase": "Pending", "conditions": [condition]}
    return simulated


def _one_by_one() -> SimulatedJob:
    simulated = _running()
    assert "status" not in simulated.get("PodGroup", "example-0")
    return simulated


def _released() -> SimulatedJob:
    simulated = _running()
    simulated.get("PodGroup", "example-0")["metadata"]["deletionTimestamp"] = format_time(NOW)
    for pod in _pods(simulated):
        pod["status"] = {"phase": "Succeeded"}
    return simulated


def _dropped() -> SimulatedJob:
    simulated = _running()
    for pod in _pods(simulated):
        del pod["spec"]["schedulingGroup"]
    return simulated


def _upgraded() -> SimulatedJob:
    """An operator without gangs has started the pods."""
    simulated = SimulatedJob(JAXJOB, kubeflow_job("JAXJob", Worker=3))
    simulated.settle()
    simulated.run()
    simulated.config = Config(gang_scheduler="native")
    simulated.now += 5
    simulated.settle()
    for pod in _pods(simulated):
        pod["spec"]["nodeName"] = "node-0"
    return simulated


def _in_one_rack(simulated: SimulatedJob, topology: list[Json]) -> SimulatedJob:
    """The job has had the annotation from its start."""
    simulated.job["metadata"]["annotations"] = {"trainyard.dev/topology-key": "rack"}
    group = simulated.get("PodGroup", "example-0")
    group["metadata"]["annotations"] = {"trainyard.dev/topology-key": "rack"}
    group["spec"]["schedulingConstraints"] = {"topology": topology}
    return simulated


def _edited(before: str, after: str) -> SimulatedJob:
    """The annotation of a running job was edited. Its nodes are in two racks, and in one row."""
    job = kubeflow_job("JAXJob", Worker=3)
    job["metadata"]["annotations"] = {"trainyard.dev/topology-key": before} if before else {}
    simulated = SimulatedJob(JAXJOB, job, config=Config(gang_scheduler="native"))
    simulated.settle()
    simulated.run()
    simulated.job["metadata"]["annotations"] = {"trainyard.dev/topology-key": after} if after else {}
    simulated.settle()
    for index, pod in enumerate(_pods(simulated)):
        pod["spec"]["nodeName"] = f"node-{index}"
    return simulated


CASES: dict[str, tuple[Callable[[], SimulatedJob], int, tuple[str, ...]]] = {
    "too few members exist": (
        lambda: _without("Pod", "example-worker-2"),
        BLOCK,
        ("worker-0, worker-1: kube-scheduler holds its pod: 2 of the 3 members of its gang exist",),
    ),
    "the group does not exist": (
        lambda: _without("PodGroup", "example-0"),
        BLOCK,
        ("worker-0, worker-1, worker-2: kube-scheduler holds its pod: its PodGroup does not exist",),
    ),
    "a member has a scheduling gate": (
        _with_a_gate,
        BLOCK,
        ("its member example-worker-1 has a scheduling gate", "removes the gate kueue.x-k8s.io/topology"),
    ),
    "a member fits nowhere": (
        _unschedulable,
        BLOCK,
        (GROUP_TEXT, "example-worker-2: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    ),
    "the scheduler does not serve groups": (
        _one_by_one,
        FINE,
        ("kube-scheduler does not serve gangs: it has placed the pods one by one", "GenericWorkload=true"),
    ),
    "no rack has room": (
        lambda: _in_one_rack(_unschedulable(*[PLACEMENTS] * 3), [{"key": "rack"}]),
        BLOCK,
        ("its gang waits for room for all 3 pods in one rack", "one value of the label rack"),
    ),
    "the API server drops the topology": (
        lambda: _in_one_rack(_running(), []),
        FINE,
        ("the API server has dropped the topology of its gang: its pods need not be in one rack",),
    ),
    "the scheduler ignores the topology": (
        lambda: _in_one_rack(_running(), [{"key": "rack"}]),
        FINE,
        ("kube-scheduler ignores the topology of its gang: its pods are in 2 values of rack", "TopologyAware"),
    ),
    "the topology is asked for too late": (
        lambda: _edited("", "rack"),
        FINE,
        ("its gang started without trainyard.dev/topology-key: its pods need not be in one rack", "suspend and resume"),
    ),
    "the topology is changed too late": (
        lambda: _edited("row", "rack"),
        FINE,
        ("its gang started with trainyard.dev/topology-key row: its pods need not be in one rack",),
    ),
    "the topology is given up too late": (
        lambda: _edited("row", ""),
        FINE,
        ("its gang started with trainyard.dev/topology-key row: its pods are still placed in one row",),
    ),
    "a deleted group stays": (
        _released,
        FINE,
        ("kube-controller-manager does not release its PodGroup example-0", "GenericWorkload=true"),
    ),
    "the API server drops the field": (_dropped, FINE, ("the API server has dropped schedulingGroup of its pods",)),
    "the pods are older than the gangs of the operator": (
        _upgraded,
        FINE,
        ("its pods are no gang: they were created before their PodGroup", "suspend and resume"),
    ),
}


@pytest.mark.parametrize(("before", "after"), [("", "rack"), ("row", "rack"), ("row", "")])
def test_no_part_of_the_cluster_is_blamed_for_an_edit_of_the_topology(before: str, after: str) -> None:
    simulated = _edited(before, after)
    children = tuple(obj for ref, obj in simulated.objects.items() if ref.kind != "Pod")
    facts = Facts(JAXJOB, simulated.job, NOW + 60, tuple(_pods(simulated)), children=children, nodes=NODES)
    answer = everything(why(facts))
    assert "dropped the topology" not in answer and "ignores the topology" not in answer, answer


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_seen_is_said(name: str) -> None:
    make, level, texts = CASES[name]
    simulated = make()
    simulated.job["metadata"]["creationTimestamp"] = format_time(NOW)
    children = tuple(obj for ref, obj in simulated.objects.items() if ref.kind != "Pod")
    facts = Facts(JAXJOB, simulated.job, NOW + 60, tuple(_pods(simulated)), children=children, nodes=NODES)
    findings = why(facts)
    answer = everything(findings)
    assert not [text for text in texts if text not in answer], answer
    assert findings[0].level == level, answer


def test_a_gang_that_was_placed_is_no_finding() -> None:
    simulated = _running()
    placed = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    simulated.get("PodGroup", "example-0")["status"] = {"conditions": [placed]}
    children = tuple(obj for ref, obj in simulated.objects.items() if ref.kind != "Pod")
    answer = everything(why(Facts(JAXJOB, simulated.job, NOW + 60, tuple(_pods(simulated)), children=children)))
    assert "gang" not in answer and "kube-scheduler" not in answer, answer
