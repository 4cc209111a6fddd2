"""The EndpointSlice controller (discovery.k8s.io/v1): the addresses and ports of the pods that a Service selects.

A Service has one slice, or one for each 1,000 pods. Only slices whose label `endpointslice.kubernetes.io/managed-by`
has our value are changed. For a Service without a selector, other clients write the slices. Addresses are IPv4. No
Endpoints objects are written: that API is deprecated, and nothing here reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trainyard.objects import (
    GVK,
    Json,
    NamespacedName,
    controller_reference,
    is_condition_true,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainyard.objects.resources import ENDPOINT_SLICE, POD, SERVICE
from trainyard.objects.writes import Create, Patch
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Decision, Write, delete_of

SERVICE_NAME_LABEL = "kubernetes.io/service-name"  # label
MANAGED_BY_LABEL, CONTROLLER_NAME = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HEADLESS_LABEL = "service.kubernetes.io/headless"
MAX_ENDPOINTS_PER_SLICE = 1000  # endpoints per slice: the maximum of the API


def decide(service: Json, pods: list[Json], slices: list[Json]) -> Decision:
    """The writes for one Service. `pods` are the pods that it selects, `slices` those whose label names it."""
    if is_deleting(service):
        return Decision()
    addressed_pods = sorted(filter(_has_address, pods), key=name_of)
    slice_endpoints = [_endpoint(service, pod) for pod in addressed_pods]
    ports = _ports(service, addressed_pods)
    managed = {
        name_of(existing): existing
        for existing in slices
        if labels_of(existing).get(MANAGED_BY_LABEL) == CONTROLLER_NAME
    }
    writes: list[Write] = []
    for start in range(0, len(slice_endpoints) or 1, MAX_ENDPOINTS_PER_SLICE) if selector_of(service) else ():
        name = pod_facts.generated_name(
            name_of(service), pod_facts.name_suffix(uid_of(service), "", start // MAX_ENDPOINTS_PER_SLICE)
        )
        desired: Json = {"endpoints": slice_endpoints[start : start + MAX_ENDPOINTS_PER_SLICE], "ports": ports}
        current = managed.pop(name, None)
        if current is None:
            writes.append(Create(ENDPOINT_SLICE, _new_slice(service, name, desired)))
        elif not is_deleting(current) and {key: current.get(key) or [] for key in desired} != desired:
            version = {"resourceVersion": current["metadata"]["resourceVersion"]}
            writes.append(Patch(ENDPOINT_SLICE, namespace_of(current), name, {"metadata": version, **desired}))
    deletes = [delete_of(ENDPOINT_SLICE, surplus) for surplus in managed.values() if not is_deleting(surplus)]
    return Decision((*writes, *deletes))


def selects(service: Json, pod: Json) -> bool:
    """True when the Service's selector matches the labels of the pod, in the same namespace."""
    selector, labels = selector_of(service), labels_of(pod)
    same_namespace = namespace_of(service) == namespace_of(pod)
    return same_namespace and bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def affected_services(
    gvk: GVK, before: Json | None, after: Json | None, services_of: Callable[[Json], Iterable[Json]]
) -> Iterator[NamespacedName]:
    """The keys of the Services to reconcile after a change of an object: (before, after), None where it is absent.
    `services_of`: the Services that select a pod."""
    obj = after or before or {}
    if gvk == SERVICE:
        yield key_of(obj)
    elif gvk == ENDPOINT_SLICE and (name := labels_of(obj).get(SERVICE_NAME_LABEL)):
        yield NamespacedName(namespace_of(obj), name)
    elif gvk == POD and _endpoint_fields(before) != _endpoint_fields(after):
        for pod in filter(None, (before, after)):
            yield from map(key_of, services_of(pod))


def _endpoint_fields(pod: Json | None) -> object:
    """The fields of a pod that its endpoint depends on; None for a pod without an endpoint."""
    if pod is None or not _has_address(pod):
        return None
    return labels_of(pod), status_of(pod)["podIP"], pod_facts.ready(pod), is_deleting(pod), uid_of(pod)


def selector_of(service: Json) -> dict[str, str]:
    """The labels that a pod must have for the Service to select it; {} when it selects none."""
    spec = spec_of(service)
    return {} if spec.get("type") == "ExternalName" else spec.get("selector") or {}


def _has_address(pod: Json) -> bool:
    return bool(status_of(pod).get("podIP")) and not pod_facts.is_finished(pod)


def _endpoint(service: Json, pod: Json) -> Json:
    serving, terminating = is_condition_true(status_of(pod).get("conditions"), "Ready"), is_deleting(pod)
    ready = bool(spec_of(service).get("publishNotReadyAddresses")) or (serving and not terminating)
    endpoint: Json = {
        "addresses": [status_of(pod)["podIP"]],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)},
    }
    spec = spec_of(pod)
    if spec.get("nodeName"):
        endpoint["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == name_of(service):
        endpoint["hostname"] = spec["hostname"]
    return endpoint


def _ports(service: Json, pods: list[Json]) -> list[Json]:
    """The ports of the slice. A `targetPort` that is a name is the container port of that name in the first pod that
    has one: the pods of one Service are assumed to have the same template."""
    number_by_name = {
        container_port.get("name"): container_port.get("containerPort")
        for pod in reversed(pods)
        for container in spec_of(pod).get("containers") or []
        for container_port in container.get("ports") or []
    }
    slice_ports = []
    for port in spec_of(service).get("ports") or []:
        target = port.get("targetPort") or port.get("port")
        number = target if isinstance(target, int) else number_by_name.get(target)
        if number:
            protocol = port.get("protocol") or "TCP"
            slice_ports.append({"name": port.get("name") or "", "port": number, "protocol": protocol})
    return slice_ports


def _new_slice(service: Json, name: str, fields: Json) -> Json:
    labels = {**labels_of(service), SERVICE_NAME_LABEL: name_of(service), MANAGED_BY_LABEL: CONTROLLER_NAME}
    if spec_of(service).get("clusterIP") == "None":
        labels[HEADLESS_LABEL] = ""
    owner = controller_reference("v1", "Service", name_of(service), uid_of(service))
    meta = {"name": name, "namespace": namespace_of(service), "labels": labels, "ownerReferences": [owner]}
    return {
        "apiVersion": ENDPOINT_SLICE.api_version,
        "kind": ENDPOINT_SLICE.kind,
        "metadata": meta,
        "addressType": "IPv4",
        **fields,
    }
