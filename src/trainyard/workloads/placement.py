"""Which node runs a pod: any that is ready, the one with the fewest pods first.

Node selectors, affinities, taints and resource requests are not weighed: on a laptop there is one node, and a manifest
that asks for a GPU pool shall still train. A pod with scheduling gates, or for another scheduler, is left alone. A pod
whose PersistentVolumeClaim does not exist waits for it, as the real scheduler has it, and the message is that one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from trainyard.core import Event
from trainyard.objects import Json, condition, is_true, name_of, namespace_of, uid_of, with_condition
from trainyard.objects.resources import POD
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Bind, Decision, Merge

SCHEDULER = "default-scheduler"


def waits(pod: Json) -> bool:
    """True when the pod is ours to place."""
    spec = spec_of(pod)
    return (
        not spec.get("nodeName")
        and pod_facts.active(pod)
        and not spec.get("schedulingGates")
        and (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
    )


def decide(
    pod: Json, nodes: Iterable[Json], load: Counter[str], now: float, claims: Mapping[str, Json | None] | None = None
) -> Decision:
    """`load` counts the pods that each node has by name; `claims` maps each claim name of the pod to its object, None
    for a claim that does not exist."""
    if not waits(pod):
        return Decision()
    nodes = list(nodes)
    fit = [name_of(node) for node in nodes if _takes_pods(node)]
    problem = _claim_problem(claims or {})
    if fit and not problem:
        node = min(fit, key=lambda name: (load[name], name))
        text = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node}"
        event = Event("Normal", "Scheduled", text)
        return Decision((Bind(namespace_of(pod), name_of(pod), uid_of(pod), node),), events=(event,))
    text = _unschedulable(len(nodes), problem) if problem else "no node is ready"
    old = status_of(pod).get("conditions") or []
    scheduled = condition(old, "PodScheduled")
    if scheduled and scheduled.get("status") == "False" and scheduled.get("message") == text:
        return Decision()
    body = {"status": {"conditions": with_condition(old, "PodScheduled", False, "Unschedulable", text, now)}}
    write = Merge(POD, namespace_of(pod), name_of(pod), body, "status")
    return Decision((write,), events=(Event("Warning", "FailedScheduling", text),))


def claims_of(pod: Json) -> list[str]:
    """The names of the PersistentVolumeClaims that the pod's volumes refer to."""
    sources = (volume.get("persistentVolumeClaim") for volume in spec_of(pod).get("volumes") or [])
    return [str(source["claimName"]) for source in sources if isinstance(source, dict) and source.get("claimName")]


def _claim_problem(claims: Mapping[str, Json | None]) -> str:
    for name, claim in claims.items():
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if pod_facts.deleting(claim):
            return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _unschedulable(nodes: int, problem: str) -> str:
    """As kube-scheduler words it."""
    available = f"0/{nodes} nodes are available"
    preemption = f"{available}: {nodes} Preemption is not helpful for scheduling."
    return f"{available}: {problem}. preemption: {preemption}"


def _takes_pods(node: Json) -> bool:
    return (
        is_true(status_of(node).get("conditions"), "Ready")
        and not spec_of(node).get("unschedulable")
        and not pod_facts.deleting(node)
    )
