"""The decision of each controller about an object, with what else it decides on from the graph. Pure.

garbage_collector.py has the decisions of the garbage collector, which also reads from the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

from trainyard.objects import GVK, Json, NamespacedName, key_of, name_of, namespace_of, uid_of
from trainyard.objects.extended_resources import is_device_resource, pod_requests
from trainyard.objects.resources import (
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
)
from trainyard.workloads import (
    deployments,
    device_admission,
    endpoint_slices,
    jobs,
    namespaces,
    pod_groups,
    replicasets,
    scheduler,
    statefulsets,
)
from trainyard.workloads.gangs import Gangs
from trainyard.workloads.graph import Graph
from trainyard.workloads.pod_groups import group_of
from trainyard.workloads.pods import spec_of
from trainyard.workloads.scheduler import DeviceChoice
from trainyard.workloads.writes import Bind, Decision

POD_CONTROLLERS = {
    JOB: jobs.decide,
    REPLICA_SET: replicasets.decide,
    STATEFUL_SET: statefulsets.decide,
}
"""The `decide` functions of the resources whose controllers own pods directly."""


def decide_workload(graph: Graph, gvk: GVK, obj: Json, now: float) -> Decision:
    """The writes for a Job, ReplicaSet, StatefulSet or Deployment, from the pods that it controls. `now`: Unix
    seconds."""
    pods = graph.controlled_by(POD, uid_of(obj))
    if gvk in POD_CONTROLLERS:
        return POD_CONTROLLERS[gvk](obj, pods, now)
    replica_sets = graph.controlled_by(REPLICA_SET, uid_of(obj))
    pods += [pod for replica_set in replica_sets for pod in graph.controlled_by(POD, uid_of(replica_set))]
    return deployments.decide(obj, replica_sets, pods, now)


def decide_namespace(graph: Graph, namespace: Json, root_ca: str) -> Decision:
    """The writes that create the ServiceAccount `default` and the ConfigMap with the root certificate `root_ca`
    (PEM)."""
    account, root = (
        graph.get(gvk, NamespacedName(name_of(namespace), name)) for gvk, name in namespaces.DEFAULT_OBJECTS.items()
    )
    return namespaces.decide(namespace, account, root, root_ca)


def decide_endpoint_slices(graph: Graph, service: Json) -> Decision:
    """The writes that make the EndpointSlices of a Service match the pods that it selects."""
    pods, slices = graph.selected_pods(service), graph.endpoint_slices_of(service)
    return endpoint_slices.decide(service, pods, slices)


def decide_placement(
    graph: Graph, pod: Json, now: float, local_claims: Container[str], assumed: Mapping[str, str]
) -> Decision:
    """The binding of a pod of no PodGroup to a node, or its condition PodScheduled False. `local_claims`: names of
    claims that the nodes provide themselves, without a PersistentVolumeClaim. `assumed`: uid -> node of the pods whose
    binding was sent and that the graph shows without a node."""
    nodes, load, usable = _nodes(graph)
    requests = pod_requests(pod)
    if any(map(is_device_resource, requests)) and any(map(device_admission.is_finding_devices, usable)):
        return Decision()  # it is decided again when the Node has changed
    claims = _claims(graph, pod, local_claims)
    choice = None
    resources = device_admission.node_resources(usable)
    if counted := device_admission.counted_requests(pod, resources):
        attempts = device_admission.attempts(_candidates(graph, resources, assumed), resources)
        attempt = attempts.get(uid_of(pod))
        choice = DeviceChoice(attempt.nodes.get(uid_of(pod), "") if attempt else "", tuple(sorted(counted)))
    return scheduler.decide(pod, nodes, load, now, claims, choice)


def decide_group_placement(
    graph: Graph, group: Json, now: float, local_claims: Container[str], assumed: Mapping[str, str]
) -> Decision:
    """The bindings of all pending members of a PodGroup, or their conditions and that of the group. Parameters as
    above."""
    members = graph.members_of(key_of(group))
    pending = [pod for pod in members if scheduler.needs_scheduling(pod) and uid_of(pod) not in assumed]
    nodes, load, usable = _nodes(graph)
    if not pending or pod_groups.is_held(group, members):
        return Decision()
    needs_devices = any(is_device_resource(name) for pod in pending for name in pod_requests(pod))
    if needs_devices and any(map(device_admission.is_finding_devices, usable)):
        return Decision()
    claims = {uid_of(pod): _claims(graph, pod, local_claims) for pod in pending}
    blocked = {uid for uid, claims_of_pod in claims.items() if scheduler.claim_problem(claims_of_pod)}
    resources = device_admission.node_resources(usable)
    candidates = _candidates(graph, resources, assumed, key_of(group), blocked)
    attempt = device_admission.attempts(candidates, resources).get(uid_of(group))
    if attempt is None:
        return Decision()
    decided = []
    for pod in pending:
        choice = _choice_in_group(pod, group, attempt, resources)
        decision = scheduler.decide(pod, nodes, load, now, claims[uid_of(pod)], choice)
        load.update(write.node for write in decision.writes if isinstance(write, Bind))
        decided.append((pod, decision))
    writes = [write for _, decision in decided for write in decision.writes]
    return Decision(
        (
            # Until the first binding is sent, another decision may take the room.
            *sorted(writes, key=lambda write: not isinstance(write, Bind)),
            *(pod_groups.decide_condition(group, attempt, now) if usable else ()),
        ),
        pod_events=tuple((pod, event) for pod, decision in decided for event in decision.events),
    )


def _choice_in_group(
    pod: Json, group: Json, attempt: device_admission.Attempt, resources: Mapping[str, Counter[str]]
) -> DeviceChoice | None:
    counted = device_admission.counted_requests(pod, resources)
    if not attempt.is_admitted:
        return DeviceChoice("", tuple(sorted(counted)), pod_groups.member_message(pod, group, attempt))
    if not counted:
        return None
    return DeviceChoice(attempt.nodes.get(uid_of(pod), ""), tuple(sorted(counted)))


def _nodes(graph: Graph) -> tuple[list[Json], Counter[str], list[Json]]:
    """All nodes, the number of pods by node name (of several nodes), and the nodes to which pods may be bound, those
    with the fewest pods first."""
    nodes = list(graph.all(NODE))
    load: Counter[str] = Counter()
    if len(nodes) > 1:
        load.update(str(spec_of(other_pod).get("nodeName") or "") for other_pod in graph.all(POD))
    usable = sorted(filter(scheduler.is_schedulable, nodes), key=lambda node: (load[name_of(node)], name_of(node)))
    return nodes, load, usable


def _claims(graph: Graph, pod: Json, local_claims: Container[str]) -> dict[str, Json | None]:
    return {
        name: graph.get(PERSISTENT_VOLUME_CLAIM, NamespacedName(namespace_of(pod), name))
        for name in scheduler.claim_names(pod)
        if name not in local_claims
    }


def _candidates(
    graph: Graph,
    resources: Mapping[str, Counter[str]],
    assumed: Mapping[str, str],
    group: NamespacedName | None = None,
    blocked: Container[str] = (),
) -> list[device_admission.GangPod]:
    """The pods that request something that these nodes list, and all of the PodGroup."""
    gangs = Gangs(graph)
    return [
        device_admission.gang_pod(pod, gangs.of(pod), counted, assumed, uid_of(pod) in blocked)
        for pod in graph.all(POD)
        if (counted := device_admission.counted_requests(pod, resources)) or (group and group_of(pod) == group)
    ]
