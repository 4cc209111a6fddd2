"""Which node runs a pod: any that is ready, the one with the fewest pods first.

Node selectors, affinities, taints and resource requests are not weighed: on a laptop there is one node, and a manifest
that asks for a GPU pool shall still train. A pod with scheduling gates, or for another scheduler, is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trainyard.objects import GVK, Json, condition, is_true, name_of, namespace_of, uid_of, with_condition
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Bind, Decision, Merge

POD = GVK("", "v1", "Pod", "pods")
NODE = GVK("", "v1", "Node", "nodes")
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


def decide(pod: Json, nodes: Iterable[Json], load: Counter[str], now: float) -> Decision:
    """`load` counts the pods that each node has by name."""
    if not waits(pod):
        return Decision()
    fit = [name_of(node) for node in nodes if _takes_pods(node)]
    if fit:
        node = min(fit, key=lambda name: (load[name], name))
        return Decision((Bind(namespace_of(pod), name_of(pod), uid_of(pod), node),))
    old = status_of(pod).get("conditions") or []
    text = "no node is ready"
    said = condition(old, "PodScheduled")
    if said and said.get("status") == "False" and said.get("message") == text:
        return Decision()
    body = {"status": {"conditions": with_condition(old, "PodScheduled", False, "Unschedulable", text, now)}}
    return Decision((Merge(POD, namespace_of(pod), name_of(pod), body, "status"),))


def _takes_pods(node: Json) -> bool:
    return (
        is_true(status_of(node).get("conditions"), "Ready")
        and not spec_of(node).get("unschedulable")
        and not pod_facts.deleting(node)
    )
