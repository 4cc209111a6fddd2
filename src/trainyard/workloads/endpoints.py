"""discovery.k8s.io/v1 EndpointSlice: where the pods behind a Service are, for people and for whoever asks the API.

One slice for a Service, more where there are more than 1,000 pods; ours alone, told by the label of who manages it. A
Service without a selector has what somebody else writes. Addresses are IPv4. There are no Endpoints: their API is on
its way out, and nothing here reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainyard.objects import GVK, Json, Key, is_true, key_of, labels_of, name_of, namespace_of, owner_reference, uid_of
from trainyard.objects.resources import ENDPOINT_SLICE, POD, SERVICE
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import spec_of, status_of
from trainyard.workloads.writes import Create, Decision, Merge, Write, delete_of

OF = "kubernetes.io/service-name"
BY, US = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
MOST = 1000  # endpoints in one slice: the API allows no more


def decide(service: Json, pods: list[Json], slices: list[Json]) -> Decision:
    """`pods` are all of the namespace that `selects` chooses, `slices` all that name the Service."""
    if pod_facts.deleting(service):
        return Decision()
    placed = sorted(filter(_has_place, pods), key=name_of)
    found, ports = [_endpoint(service, pod) for pod in placed], _ports(service, placed)
    ours = {name_of(one): one for one in slices if labels_of(one).get(BY) == US}
    writes: list[Write] = []
    for number in range(0, len(found) or 1, MOST) if _selector(service) else ():
        name = pod_facts.generated(name_of(service), pod_facts.suffix(uid_of(service), "", number // MOST))
        wanted: Json = {"endpoints": found[number : number + MOST], "ports": ports}
        there = ours.pop(name, None)
        if there is None:
            writes.append(Create(ENDPOINT_SLICE, _slice(service, name, wanted)))
        elif not pod_facts.deleting(there) and {key: there.get(key) or [] for key in wanted} != wanted:
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            writes.append(Merge(ENDPOINT_SLICE, namespace_of(there), name, {"metadata": version, **wanted}))
    gone = [delete_of(ENDPOINT_SLICE, one) for one in ours.values() if not pod_facts.deleting(one)]
    return Decision((*writes, *gone))


def selects(service: Json, pod: Json) -> bool:
    """Whether the pod is behind the Service."""
    selector, labels = _selector(service), labels_of(pod)
    same = namespace_of(service) == namespace_of(pod)
    return same and bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def concerned(gvk: GVK, before: Json | None, after: Json | None, services: Iterable[Json]) -> Iterator[Key]:
    """The Services that such a change of an object may have moved."""
    one = after or before or {}
    if gvk == SERVICE:
        yield key_of(one)
    elif gvk == ENDPOINT_SLICE and (name := labels_of(one).get(OF)):
        yield Key(namespace_of(one), name)
    elif gvk == POD and _place(before) != _place(after):
        for service in services:
            if any(pod and selects(service, pod) for pod in (before, after)):
                yield key_of(service)


def _place(pod: Json | None) -> object:
    """What of a pod its endpoint shows. None where it has none."""
    if pod is None or not _has_place(pod):
        return None
    return labels_of(pod), status_of(pod)["podIP"], pod_facts.ready(pod), pod_facts.deleting(pod), uid_of(pod)


def _selector(service: Json) -> Json:
    spec = spec_of(service)
    return {} if spec.get("type") == "ExternalName" else spec.get("selector") or {}


def _has_place(pod: Json) -> bool:
    return bool(status_of(pod).get("podIP")) and not pod_facts.ended(pod)


def _endpoint(service: Json, pod: Json) -> Json:
    ready, going = is_true(status_of(pod).get("conditions"), "Ready"), pod_facts.deleting(pod)
    all_the_same = bool(spec_of(service).get("publishNotReadyAddresses"))
    endpoint: Json = {
        "addresses": [status_of(pod)["podIP"]],
        "conditions": {"ready": all_the_same or (ready and not going), "serving": ready, "terminating": going},
        "targetRef": {"kind": "Pod", "namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)},
    }
    spec = spec_of(pod)
    if spec.get("nodeName"):
        endpoint["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == name_of(service):
        endpoint["hostname"] = spec["hostname"]
    return endpoint


def _ports(service: Json, pods: list[Json]) -> list[Json]:
    """A port that is a name is what the first pod calls so that has it: pods behind one Service are of one make."""
    named = {
        one.get("name"): one.get("containerPort")
        for pod in reversed(pods)
        for container in spec_of(pod).get("containers") or []
        for one in container.get("ports") or []
    }
    found = []
    for port in spec_of(service).get("ports") or []:
        target = port.get("targetPort") or port.get("port")
        number = target if isinstance(target, int) else named.get(target)
        if number:
            found.append({"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"})
    return found


def _slice(service: Json, name: str, wanted: Json) -> Json:
    labels = {**labels_of(service), OF: name_of(service), BY: US}
    if spec_of(service).get("clusterIP") == "None":
        labels[HEADLESS] = ""
    owner = owner_reference("v1", "Service", name_of(service), uid_of(service))
    meta = {"name": name, "namespace": namespace_of(service), "labels": labels, "ownerReferences": [owner]}
    return {
        "apiVersion": ENDPOINT_SLICE.api_version,
        "kind": ENDPOINT_SLICE.kind,
        "metadata": meta,
        "addressType": "IPv4",
        **wanted,
    }
