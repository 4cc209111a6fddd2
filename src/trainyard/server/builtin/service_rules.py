"""Validation and warnings of Services, after type checks and defaulting."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import json_text
from trainyard.server.builtin.addresses import (
    cidr_problems,
    cidr_warnings,
    ip_problems,
    ip_warnings,
    non_special_ip_problems,
    parse_ip,
)
from trainyard.server.builtin.pod_probes import port_problems
from trainyard.server.builtin.schema_builders import set_defaults
from trainyard.server.builtin.service_addresses import EXTERNAL_NAME, EXTERNAL_TYPES, type_problems
from trainyard.server.builtin.validators import PROTOCOLS, validate_enum, validate_qualified_name
from trainyard.server.registry.metadata import label_problems, name_problem

TYPES = ("ClusterIP", EXTERNAL_NAME, *EXTERNAL_TYPES)
POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
MODES = ("Proxy", "VIP")
MAX_CLIENT_IP_TIMEOUT = 86400
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_HINTS, _TOPOLOGY = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"


def service_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec, old_spec = new["spec"], (old or {}).get("spec") or {}
    yield from validate_enum(spec["type"], TYPES, "spec.type")
    yield from type_problems(spec, old_spec)
    yield from _cluster_ip_update(spec, old_spec)
    yield from label_problems(spec.get("selector") or {}, "spec.selector")
    yield from _ports(spec)
    yield from _session_affinity(spec)
    yield from _external_access(spec)
    yield from _load_balancer(new, old_spec)
    yield from _traffic_policies(spec)
    if spec["type"] == EXTERNAL_NAME:
        name = (spec.get("externalName") or "").removesuffix(".")
        if not name:
            yield Problem("spec.externalName", "Required value")
        elif problem := name_problem(name, "subdomain", "spec.externalName"):
            yield problem
    annotations = new["metadata"].get("annotations") or {}
    if _HINTS in annotations and _TOPOLOGY in annotations and annotations[_HINTS] != annotations[_TOPOLOGY]:
        text = f"must match annotations[{_HINTS}] when both are specified"
        yield Problem(
            f"metadata.annotations[{_TOPOLOGY}]", f"Invalid value: {json_text(annotations[_TOPOLOGY])}: {text}"
        )


def _cluster_ip_update(spec: Json, old_spec: Json) -> Iterator[Problem]:
    """Problems of a changed cluster IP, which is immutable."""
    old_address = old_spec.get("clusterIP")
    if (
        old_address
        and EXTERNAL_NAME not in (spec["type"], old_spec.get("type"))
        and spec.get("clusterIP") != old_address
    ):
        shown_addresses = encode(spec.get("clusterIPs") or []).decode()
        yield Problem("spec.clusterIPs[0]", f"Invalid value: {shown_addresses}: may not change once set")


def _ports(spec: Json) -> Iterator[Problem]:
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != EXTERNAL_NAME:
        yield Problem("spec.ports", "Required value: write at least one port")
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        here, name, number = f"spec.ports[{index}]", port.get("name") or "", port["port"]
        if not name and len(ports) > 1:
            yield Problem(f"{here}.name", "Required value: with several ports each needs a name")
        if name and (problem := name_problem(name, "label", f"{here}.name")):
            yield problem
        if name in names:
            yield Problem(f"{here}.name", f"Duplicate value: {json_text(name)}")
        names.update((name,) if name else ())
        yield from port_problems(number, f"{here}.port")
        yield from port_problems(port["targetPort"], f"{here}.targetPort")
        yield from validate_enum(port["protocol"], PROTOCOLS, f"{here}.protocol")
        if (protocol := port.get("appProtocol")) is not None:
            yield from validate_qualified_name(protocol, f"{here}.appProtocol")
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            yield Problem(f"{here}.nodePort", "Forbidden: may not be used when `type` is 'ClusterIP'")
        if (port["protocol"], number) in seen:
            yield Problem(here, f"Duplicate value: {json_text({'port': number, 'protocol': port['protocol']})}")
        seen.add((port["protocol"], number))


def _session_affinity(spec: Json) -> Iterator[Problem]:
    """Problems of `sessionAffinity`."""
    yield from validate_enum(spec["sessionAffinity"], ("ClientIP", "None"), "spec.sessionAffinity")
    if spec["sessionAffinity"] == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= MAX_CLIENT_IP_TIMEOUT:
            text = f"Invalid value: {seconds}: must be greater than 0 and less than {MAX_CLIENT_IP_TIMEOUT}"
            yield Problem("spec.sessionAffinityConfig.clientIP.timeoutSeconds", text)


def _external_access(spec: Json) -> Iterator[Problem]:
    """Problems of external IPs, externalTrafficPolicy and healthCheckNodePort."""
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        yield from list(ip_problems(address, path)) or non_special_ip_problems(address, path)
    service_type, policy = spec["type"], spec.get("externalTrafficPolicy")
    if service_type in EXTERNAL_TYPES or (service_type == "ClusterIP" and spec.get("externalIPs")):
        yield from validate_enum(policy, POLICIES, "spec.externalTrafficPolicy")
    elif policy:
        text = f"Invalid value: {json_text(policy)}: may only be set for externally-accessible services"
        yield Problem("spec.externalTrafficPolicy", text)
    if number := spec.get("healthCheckNodePort"):
        if service_type == "LoadBalancer" and policy == "Local":
            yield from port_problems(number, "spec.healthCheckNodePort")
        else:
            text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            yield Problem("spec.healthCheckNodePort", f"Invalid value: {number}: {text}")


def _load_balancer(new: Json, old_spec: Json) -> Iterator[Problem]:
    spec, annotations = new["spec"], new["metadata"].get("annotations") or {}
    is_load_balancer = spec["type"] == "LoadBalancer"
    if spec.get("allocateLoadBalancerNodePorts") is not None and not is_load_balancer:
        yield Problem("spec.allocateLoadBalancerNodePorts", f"Forbidden: {_ONLY_LOAD_BALANCER}")
    if ranges := spec.get("loadBalancerSourceRanges"):
        path = "spec.LoadBalancerSourceRanges"  # as kube-apiserver spells it
        if not is_load_balancer:
            yield Problem(path, f"Forbidden: {_ONLY_LOAD_BALANCER}")
        for index, cidr in enumerate(ranges):
            yield from cidr_problems(cidr.strip(), f"{path}[{index}]")
    elif _SOURCE_RANGES in annotations:
        path = f"metadata.annotations[{_SOURCE_RANGES}]"
        if not is_load_balancer:
            yield Problem(path, f"Forbidden: {_ONLY_LOAD_BALANCER}")
        for cidr in annotations[_SOURCE_RANGES].split(",") if annotations[_SOURCE_RANGES].strip() else ():
            yield from cidr_problems(cidr.strip(), path)
    yield from _load_balancer_class(spec, old_spec)


def _load_balancer_class(spec: Json, old_spec: Json) -> Iterator[Problem]:
    """Problems of `loadBalancerClass`, which is immutable."""
    name, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    is_load_balancer = spec["type"] == "LoadBalancer"
    if is_load_balancer and old_spec.get("type") == "LoadBalancer" and name != old_spec.get("loadBalancerClass"):
        yield Problem(path, f"Invalid value: {json_text(name)}: may not change once set")
    if name is not None and not is_load_balancer:
        yield Problem(path, f"Forbidden: {_ONLY_LOAD_BALANCER}")
    elif name is not None:
        yield from validate_qualified_name(name, path)


def _traffic_policies(spec: Json) -> Iterator[Problem]:
    """Problems of `internalTrafficPolicy` and `trafficDistribution`."""
    for field, supported in (("internalTrafficPolicy", POLICIES), ("trafficDistribution", DISTRIBUTIONS)):
        yield from validate_enum(spec.get(field), supported, f"spec.{field}")


def service_warnings(new: Json) -> Iterator[str]:
    spec, service_type = new["spec"], new["spec"]["type"]
    if _HINTS in (new["metadata"].get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use {_TOPOLOGY} instead"
    if headless := spec.get("clusterIP") == "None":
        for field in ("loadBalancerIP", "externalIPs"):
            if spec.get(field):
                yield f"spec.{field} is ignored for headless services"
        if spec["sessionAffinity"] != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for field in ("clusterIPs", "externalIPs"):
        for index, address in enumerate(spec.get(field) or ()):
            yield from ip_warnings(address, f"spec.{field}[{index}]")
    if spec.get("externalIPs") and service_type == EXTERNAL_NAME:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    elif spec.get("externalIPs") and not headless:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if address := spec.get("loadBalancerIP"):
        yield from ip_warnings(address, "spec.loadBalancerIP")
    for index, cidr in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from cidr_warnings(cidr, f"spec.loadBalancerSourceRanges[{index}]")
    if spec.get("externalName") and service_type != EXTERNAL_NAME:
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    status = new["status"] = new.get("status") or {}
    set_defaults(status, loadBalancer={})
    for point in status["loadBalancer"].get("ingress") or ():
        if point.get("ip"):
            set_defaults(point, ipMode="VIP")
    for condition in status.get("conditions") or ():
        condition.setdefault("lastTransitionTime", None)
        set_defaults(condition, message="", reason="", status="")


def status_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Problems of the ingress points in a LoadBalancer's status."""
    points, path = (new["status"]["loadBalancer"] or {}).get("ingress") or (), "status.loadBalancer.ingress"
    if points and new["spec"]["type"] != "LoadBalancer":
        yield Problem(path, "Forbidden: may only be used when `spec.type` is 'LoadBalancer'")
        return
    for index, point in enumerate(points):
        here, mode, name = f"{path}[{index}]", point.get("ipMode"), point.get("hostname")
        if point.get("ip"):
            yield from ip_problems(point["ip"], f"{here}.ip")
            yield from validate_enum(mode, MODES, f"{here}.ipMode")
        elif mode is not None:
            yield Problem(f"{here}.ipMode", "Forbidden: may not be specified when `ip` is not set")
        if name and parse_ip(name) is not None:
            yield Problem(
                f"{here}.hostname", f"Invalid value: {json_text(name)}: must be a DNS name, not an IP address"
            )
        elif name and (problem := name_problem(name, "subdomain", f"{here}.hostname")):
            yield problem
