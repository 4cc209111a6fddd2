"""The decision of each controller about an object, with what else it decides on from the graph. Pure.

garbage_collector.py has the decisions of the garbage collector, which also reads from the API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from trainyard.objects import GVK, Json, NamespacedName, name_of, namespace_of, uid_of
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
    replicasets,
    scheduler,
    statefulsets,
)
from trainyard.workloads.gangs import Gangs
from trainyard.workloads.graph import Graph
from trainyard.workloads.pods import spec_of
from trainyard.workloads.writes import Decision

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
    """The binding of a pod to a node, or its condition PodScheduled False. `local_claims`: names of claims that the
    nodes provide themselves, without a PersistentVolumeClaim. `assumed`: uid -> node of the pods whose binding was sent
    and that the graph shows without a node."""
    nodes = list(graph.all(NODE))
    load: Counter[str] = Counter()
    if len(nodes) > 1:
        load.update(str(spec_of(other_pod).get("nodeName") or "") for other_pod in graph.all(POD))
    claims = {
        name: graph.get(PERSISTENT_VOLUME_CLAIM, NamespacedName(namespace_of(pod), name))
        for name in scheduler.claim_names(pod)
        if name not in local_claims
    }
    usable = sorted(filter(scheduler.is_schedulable, nodes), key=lambda node: (load[name_of(node)], name_of(node)))
    requests = pod_requests(pod)
    if any(map(is_device_resource, requests)) and any(map(device_admission.is_finding_devices, usable)):
        return Decision()  # it is decided again when the Node has changed
    return scheduler.decide(pod, nodes, load, now, claims, _device_choice(graph, pod, usable, assumed))


def _device_choice(
    graph: Graph, pod: Json, nodes: Sequence[Json], assumed: Mapping[str, str]
) -> scheduler.DeviceChoice | None:
    """None for a pod that requests nothing that these nodes list."""
    resources = device_admission.node_resources(nodes)
    requests = device_admission.counted_requests(pod, resources)
    if not requests:
        return None
    gangs = Gangs(graph, {name for counts in resources.values() for name in counts})
    candidates = [
        device_admission.gang_pod(other, *gangs.of(other), counted, assumed)
        for other in graph.all(POD)
        if (counted := device_admission.counted_requests(other, resources))
    ]
    node = device_admission.placements(candidates, resources).get(uid_of(pod), "")
    return scheduler.DeviceChoice(node, tuple(sorted(requests)), len(gangs.of(pod)[0].members))
