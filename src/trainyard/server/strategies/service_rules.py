"""What the real server refuses of Services, and what it warns of. Types have been checked, defaults are in."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import shown
from trainyard.server.metadata import label_problems, name_problem
from trainyard.server.strategies.addresses import (
    known,
    range_problems,
    range_warnings,
    reachable,
    settled,
    writing_warnings,
)
from trainyard.server.strategies.pod_probes import port_problems
from trainyard.server.strategies.refusing import PROTOCOLS, keyed, one_of
from trainyard.server.strategies.service_places import EXTERNAL, NAME_OF_ANOTHER, type_problems
from trainyard.server.strategies.shapes import fill

TYPES = ("ClusterIP", NAME_OF_ANOTHER, *EXTERNAL)
POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
MODES = ("Proxy", "VIP")
LONGEST_STICKY = 86400
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_HINTS, _TOPOLOGY = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"


def service_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec, before = new["spec"], (old or {}).get("spec") or {}
    yield from one_of(spec["type"], TYPES, "spec.type")
    yield from type_problems(spec, before)
    yield from _stays(spec, before)
    yield from label_problems(spec.get("selector") or {}, "spec.selector")
    yield from _ports(spec)
    yield from _stickiness(spec)
    yield from _from_outside(spec)
    yield from _balanced(new, before)
    yield from _ways(spec)
    if spec["type"] == NAME_OF_ANOTHER:
        name = (spec.get("externalName") or "").removesuffix(".")
        if not name:
            yield Problem("spec.externalName", "Required value")
        elif bad := name_problem(name, "subdomain", "spec.externalName"):
            yield bad
    notes = new["metadata"].get("annotations") or {}
    if _HINTS in notes and _TOPOLOGY in notes and notes[_HINTS] != notes[_TOPOLOGY]:
        text = f"must match annotations[{_HINTS}] when both are specified"
        yield Problem(f"metadata.annotations[{_TOPOLOGY}]", f"Invalid value: {shown(notes[_TOPOLOGY])}: {text}")


def _stays(spec: Json, before: Json) -> Iterator[Problem]:
    """The address of a Service is its own."""
    was = before.get("clusterIP")
    if was and NAME_OF_ANOTHER not in (spec["type"], before.get("type")) and spec.get("clusterIP") != was:
        told = encode(spec.get("clusterIPs") or []).decode()
        yield Problem("spec.clusterIPs[0]", f"Invalid value: {told}: may not change once set")


def _ports(spec: Json) -> Iterator[Problem]:
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != NAME_OF_ANOTHER:
        yield Problem("spec.ports", "Required value: write at least one port")
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        here, name, number = f"spec.ports[{index}]", port.get("name") or "", port["port"]
        if not name and len(ports) > 1:
            yield Problem(f"{here}.name", "Required value: with several ports each needs a name")
        if name and (bad := name_problem(name, "label", f"{here}.name")):
            yield bad
        if name in names:
            yield Problem(f"{here}.name", f"Duplicate value: {shown(name)}")
        names.update((name,) if name else ())
        yield from port_problems(number, f"{here}.port")
        yield from port_problems(port["targetPort"], f"{here}.targetPort")
        yield from one_of(port["protocol"], PROTOCOLS, f"{here}.protocol")
        if (asked := port.get("appProtocol")) is not None:
            yield from keyed(asked, f"{here}.appProtocol")
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            yield Problem(f"{here}.nodePort", "Forbidden: may not be used when `type` is 'ClusterIP'")
        if (port["protocol"], number) in seen:
            yield Problem(here, f"Duplicate value: {shown({'port': number, 'protocol': port['protocol']})}")
        seen.add((port["protocol"], number))


def _stickiness(spec: Json) -> Iterator[Problem]:
    """Who comes again comes to the same pod."""
    yield from one_of(spec["sessionAffinity"], ("ClientIP", "None"), "spec.sessionAffinity")
    if spec["sessionAffinity"] == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= LONGEST_STICKY:
            text = f"Invalid value: {seconds}: must be greater than 0 and less than {LONGEST_STICKY}"
            yield Problem("spec.sessionAffinityConfig.clientIP.timeoutSeconds", text)


def _from_outside(spec: Json) -> Iterator[Problem]:
    """How others than pods come to it."""
    for index, one in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        yield from list(settled(one, path)) or reachable(one, path)
    kind, policy = spec["type"], spec.get("externalTrafficPolicy")
    if kind in EXTERNAL or (kind == "ClusterIP" and spec.get("externalIPs")):
        yield from one_of(policy, POLICIES, "spec.externalTrafficPolicy")
    elif policy:
        text = f"Invalid value: {shown(policy)}: may only be set for externally-accessible services"
        yield Problem("spec.externalTrafficPolicy", text)
    if number := spec.get("healthCheckNodePort"):
        if kind == "LoadBalancer" and policy == "Local":
            yield from port_problems(number, "spec.healthCheckNodePort")
        else:
            text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            yield Problem("spec.healthCheckNodePort", f"Invalid value: {number}: {text}")


def _balanced(new: Json, before: Json) -> Iterator[Problem]:
    spec, notes = new["spec"], new["metadata"].get("annotations") or {}
    balanced = spec["type"] == "LoadBalancer"
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        yield Problem("spec.allocateLoadBalancerNodePorts", f"Forbidden: {_ONLY_BALANCED}")
    if ranges := spec.get("loadBalancerSourceRanges"):
        path = "spec.LoadBalancerSourceRanges"  # as the real server spells it
        if not balanced:
            yield Problem(path, f"Forbidden: {_ONLY_BALANCED}")
        for index, one in enumerate(ranges):
            yield from range_problems(one.strip(), f"{path}[{index}]")
    elif _RANGES in notes:
        path = f"metadata.annotations[{_RANGES}]"
        if not balanced:
            yield Problem(path, f"Forbidden: {_ONLY_BALANCED}")
        for one in notes[_RANGES].split(",") if notes[_RANGES].strip() else ():
            yield from range_problems(one.strip(), path)
    yield from _class(spec, before)


def _class(spec: Json, before: Json) -> Iterator[Problem]:
    """Whose matter a LoadBalancer is, which stays."""
    name, path, balanced = spec.get("loadBalancerClass"), "spec.loadBalancerClass", spec["type"] == "LoadBalancer"
    if balanced and before.get("type") == "LoadBalancer" and name != before.get("loadBalancerClass"):
        yield Problem(path, f"Invalid value: {shown(name)}: may not change once set")
    if name is not None and not balanced:
        yield Problem(path, f"Forbidden: {_ONLY_BALANCED}")
    elif name is not None:
        yield from keyed(name, path)


def _ways(spec: Json) -> Iterator[Problem]:
    """Which of its pods are asked."""
    for word, words in (("internalTrafficPolicy", POLICIES), ("trafficDistribution", DISTRIBUTIONS)):
        yield from one_of(spec.get(word), words, f"spec.{word}")


def service_warnings(new: Json) -> Iterator[str]:
    spec, kind = new["spec"], new["spec"]["type"]
    if _HINTS in (new["metadata"].get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use {_TOPOLOGY} instead"
    if headless := spec.get("clusterIP") == "None":
        for word in ("loadBalancerIP", "externalIPs"):
            if spec.get(word):
                yield f"spec.{word} is ignored for headless services"
        if spec["sessionAffinity"] != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for word in ("clusterIPs", "externalIPs"):
        for index, one in enumerate(spec.get(word) or ()):
            yield from writing_warnings(one, f"spec.{word}[{index}]")
    if spec.get("externalIPs") and kind == NAME_OF_ANOTHER:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    elif spec.get("externalIPs") and not headless:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if one := spec.get("loadBalancerIP"):
        yield from writing_warnings(one, "spec.loadBalancerIP")
    for index, one in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from range_warnings(one, f"spec.loadBalancerSourceRanges[{index}]")
    if spec.get("externalName") and kind != NAME_OF_ANOTHER:
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    status = new["status"] = new.get("status") or {}
    fill(status, loadBalancer={})
    for one in status["loadBalancer"].get("ingress") or ():
        if one.get("ip"):
            fill(one, ipMode="VIP")
    for one in status.get("conditions") or ():
        one.setdefault("lastTransitionTime", None)
        fill(one, message="", reason="", status="")


def status_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Where a LoadBalancer is found."""
    places, path = (new["status"]["loadBalancer"] or {}).get("ingress") or (), "status.loadBalancer.ingress"
    if places and new["spec"]["type"] != "LoadBalancer":
        yield Problem(path, "Forbidden: may only be used when `spec.type` is 'LoadBalancer'")
        return
    for index, one in enumerate(places):
        here, mode, name = f"{path}[{index}]", one.get("ipMode"), one.get("hostname")
        if one.get("ip"):
            yield from settled(one["ip"], f"{here}.ip")
            yield from one_of(mode, MODES, f"{here}.ipMode")
        elif mode is not None:
            yield Problem(f"{here}.ipMode", "Forbidden: may not be specified when `ip` is not set")
        if name and known(name) is not None:
            yield Problem(f"{here}.hostname", f"Invalid value: {shown(name)}: must be a DNS name, not an IP address")
        elif name and (bad := name_problem(name, "subdomain", f"{here}.hostname")):
            yield bad
