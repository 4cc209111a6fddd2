"""The scheduler: binds a pod to the ready node that has the fewest pods.

Pods that request devices wait until these are free (device_admission.py), those of a PodGroup for each other
(pod_groups.py). Node selectors, affinities, taints and all
other requests are ignored: on a laptop there is one node, and a manifest with a GPU node pool is to run there too. So
is the `schedulerName`: a cluster in one process has no other scheduler, and a pod that names Volcano would wait for
ever. Pods with scheduling gates are not scheduled. A pod whose PersistentVolumeClaim does not exist stays Pending; its
message is that of kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trainyard.core import Event
from trainyard.objects import (
    Json,
    find_condition,
    is_condition_true,
    is_deleting,
    name_of,
    namespace_of,
    set_condition,
    uid_of,
)
from trainyard.objects.resources import POD
from trainyard.objects.writes import Patch
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Bind, Decision

SCHEDULER_NAME = "default-scheduler"


class DeviceChoice(NamedTuple):
    """For a pod that requests devices, or is in a gang: the node for it, "" while it has to wait, and then for which
    resources. `message`: of a pod that waits for others of its gang."""

    node: str
    lacking: tuple[str, ...] = ()
    message: str = ""


def needs_scheduling(pod: Json) -> bool:
    """True for a pod that this scheduler has to bind."""
    spec = spec_of(pod)
    return not spec.get("nodeName") and pod_facts.active(pod) and not spec.get("schedulingGates")


def decide(
    pod: Json,
    nodes: Iterable[Json],
    pods_per_node: Counter[str],
    now: float,
    claims: Mapping[str, Json | None] | None = None,
    devices: DeviceChoice | None = None,
) -> Decision:
    """The writes and events for one pod.

    `pods_per_node` has the number of pods by node name. `claims` maps the name of each PersistentVolumeClaim of the pod
    to its object, None for a claim that does not exist. `devices`: None for a pod that requests none and is in
    no gang.
    """
    if not needs_scheduling(pod):
        return Decision()
    nodes = list(nodes)
    feasible = [name_of(node) for node in nodes if is_schedulable(node)]
    problem = claim_problem(claims or {})
    insufficient = ""
    if devices is not None and feasible:
        insufficient = "" if devices.node else _insufficient_message(len(nodes), len(feasible), devices)
        feasible = [devices.node] if devices.node else []
    if feasible and not problem:
        node_name = min(feasible, key=lambda name: (pods_per_node[name], name))
        message = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node_name}"
        event = Event("Normal", "Scheduled", message)
        return Decision((Bind(namespace_of(pod), name_of(pod), uid_of(pod), node_name),), events=(event,))
    message = _unschedulable_message(len(nodes), problem) if problem else insufficient or "no node is ready"
    conditions = status_of(pod).get("conditions") or []
    scheduled = find_condition(conditions, "PodScheduled")
    if scheduled and scheduled.get("status") == "False" and scheduled.get("message") == message:
        return Decision()
    conditions = set_condition(conditions, "PodScheduled", False, "Unschedulable", message, now)
    write = Patch(POD, namespace_of(pod), name_of(pod), {"status": {"conditions": conditions}}, "status")
    return Decision((write,), events=(Event("Warning", "FailedScheduling", message),))


def claim_names(pod: Json) -> list[str]:
    """The names of the PersistentVolumeClaims that the pod's volumes refer to."""
    sources = (volume.get("persistentVolumeClaim") for volume in spec_of(pod).get("volumes") or [])
    return [str(source["claimName"]) for source in sources if isinstance(source, dict) and source.get("claimName")]


def claim_problem(claims: Mapping[str, Json | None]) -> str:
    """Why a pod with these claims fits on no node, "" for none. `claims`: as for `decide`."""
    for name, claim in claims.items():
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if is_deleting(claim):
            return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _unschedulable_message(node_count: int, problem: str) -> str:
    """The message of kube-scheduler."""
    available = f"0/{node_count} nodes are available"
    preemption = f"{available}: {node_count} Preemption is not helpful for scheduling."
    return f"{available}: {problem}. preemption: {preemption}"


def _insufficient_message(node_count: int, feasible: int, devices: DeviceChoice) -> str:
    """The message of kube-scheduler. It does not change while the pod waits, so that there is one event."""
    lacking = ", ".join(f"{feasible} Insufficient {resource}" for resource in devices.lacking)
    return devices.message or f"0/{node_count} nodes are available: {lacking}."


def is_ready(node: Json) -> bool:
    """Whether the Node's condition Ready is True."""
    return is_condition_true(status_of(node).get("conditions"), "Ready")


def is_schedulable(node: Json) -> bool:
    """Whether pods may be bound to the Node."""
    return is_ready(node) and not spec_of(node).get("unschedulable") and not is_deleting(node)
