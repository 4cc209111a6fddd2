"""Services: an address each, unless they are headless. What they may say is judged in service_rules.py."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server import errors
from trainyard.server.resources import Column, Resource
from trainyard.server.site import Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.service_places import (
    EXTERNAL,
    FAMILIES,
    NAME_OF_ANOTHER,
    anywhere,
    foreign,
    none_free,
    place_problems,
)
from trainyard.server.strategies.service_rules import (
    prepare_status,
    service_problems,
    service_warnings,
    status_problems,
)
from trainyard.server.strategies.shapes import FREE, PAIRS, STRING, fill, fill_empty, many, obj, text, whole
from trainyard.server.tables import AGE, NAME

STICKY_SECONDS = 10800
_SPEC = obj(selector=PAIRS, type=STRING, clusterIP=STRING, ports=many(FREE))
_UNSAID = ("clusterIP", "externalName", "loadBalancerIP", "externalTrafficPolicy", "healthCheckNodePort")
_PLACES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def prepare(new: Json, old: Json | None, site: Site) -> None:
    fill(new, spec={})
    spec, before = new["spec"], (old or {}).get("spec") or {}
    _drop_unsaid(spec)
    fill_empty(spec, type="ClusterIP", sessionAffinity="None")
    _fill_ports(spec)
    _fill_policies(spec)
    if old is None:
        new["status"] = {"loadBalancer": {}}
    elif spec["type"] == NAME_OF_ANOTHER and before["type"] != NAME_OF_ANOTHER:
        _leave(spec, before, *_PLACES)
    elif before["type"] != NAME_OF_ANOTHER:
        _stay(spec, before)
    _leave_behind(spec, before)
    if before.get("type") == "LoadBalancer" != spec["type"]:
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
    if spec["type"] == NAME_OF_ANOTHER and spec.get("internalTrafficPolicy") in ("Cluster", "Local"):
        del spec["internalTrafficPolicy"]
    _place(new, before, site)
    site.warnings.extend(service_warnings(new))


def _drop_unsaid(spec: Json) -> None:
    """What is "" or 0 is not there."""
    for word in _UNSAID:
        if not spec.get(word):
            spec.pop(word, None)
    if not spec.get("publishNotReadyAddresses"):
        spec.pop("publishNotReadyAddresses", None)
    for port in spec.get("ports") or ():
        for word in ("name", "nodePort"):
            if not port.get(word):
                port.pop(word, None)


def _fill_ports(spec: Json) -> None:
    for port in spec.get("ports") or ():
        fill(port, port=0)
        fill_empty(port, protocol="TCP", targetPort=port["port"])


def _fill_policies(spec: Json) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        sticky = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if sticky.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": STICKY_SECONDS}}
    if spec["type"] in ("ClusterIP", *EXTERNAL):
        fill(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in EXTERNAL or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        fill(spec, allocateLoadBalancerNodePorts=True)


def _stay(spec: Json, before: Json) -> None:
    """What an update leaves out stays."""
    fill(spec, clusterIP=before.get("clusterIP"))
    if spec["clusterIP"] == before.get("clusterIP"):
        fill_empty(spec, clusterIPs=before.get("clusterIPs"))
    fill_empty(spec, ipFamilies=before.get("ipFamilies"))
    if spec.get("ipFamilyPolicy") == "SingleStack" and spec["ipFamilies"] == before.get("ipFamilies"):
        spec["ipFamilies"] = spec["ipFamilies"][:1]
    fill(spec, ipFamilyPolicy=before.get("ipFamilyPolicy"))
    if spec["type"] in EXTERNAL and before["type"] in EXTERNAL:
        given = _given(before)
        for port in spec.get("ports") or ():
            if number := given.get((port["protocol"], port["port"])):
                fill(port, nodePort=number)


def _given(spec: Json) -> dict[tuple[str, int], int | None]:
    """The ports of nodes, by what leads to them."""
    return {(port["protocol"], port["port"]): port.get("nodePort") for port in spec.get("ports") or ()}


def _leave(spec: Json, before: Json, *words: str) -> None:
    """What was of another type goes with it, unless somebody has changed it."""
    for word in words:
        if word in spec and spec[word] == before.get(word):
            del spec[word]


def _leave_behind(spec: Json, before: Json) -> None:
    kind, was = spec["type"], before.get("type")
    if was in EXTERNAL and kind not in EXTERNAL:
        given = _given(before)
        for port in spec.get("ports") or ():
            if port.get("nodePort") == given.get((port["protocol"], port["port"])):
                port.pop("nodePort", None)
    if was == "LoadBalancer" and kind != "LoadBalancer":
        _leave(spec, before, "allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort")
    if before and kind not in EXTERNAL and not (kind == "ClusterIP" and spec.get("externalIPs")):
        _leave(spec, before, "externalTrafficPolicy")


def _place(new: Json, before: Json, site: Site) -> None:
    """An address, and of which families. Raises Refused 422: what is wrong with these is told before all else."""
    spec = new["spec"]
    if spec.get("clusterIP"):
        fill_empty(spec, clusterIPs=[spec["clusterIP"]])
    _refuse(new, list(place_problems(spec, before)))
    if spec["type"] == NAME_OF_ANOTHER:
        return
    families = spec.get("ipFamilies") or []
    if anywhere(spec) and not before.get("clusterIP"):
        fill(spec, ipFamilyPolicy="RequireDualStack")
        if spec["ipFamilyPolicy"] != "SingleStack":
            families = [*families, *[one for one in FAMILIES if one not in families]]
    fill(spec, ipFamilyPolicy="SingleStack")
    spec["ipFamilies"] = families or ["IPv4"]
    address = spec.get("clusterIP")
    if not address:
        address = spec["clusterIP"] = site.addresses.next()
        spec["clusterIPs"] = [address]
        if not address:
            _refuse(new, [none_free()])
    elif address != "None" and not before.get("clusterIP"):
        if (bad := foreign(address)) is not None:
            _refuse(new, [bad])
        if site.addresses.taken(address):
            why = "failed to allocate: provided IP is already allocated"
            _refuse(new, [Problem("spec.clusterIPs", f"Invalid value: {shown([address])}: {why}")])


def _refuse(new: Json, problems: list[Problem]) -> None:
    if problems:
        raise errors.invalid("Service", "", new["metadata"].get("name") or "", problems)


def fields(service: Json) -> Mapping[str, str]:
    spec = service.get("spec") or {}
    return {"spec.clusterIP": text(spec.get("clusterIP")), "spec.type": text(spec.get("type"))}


def selector_text(service: Json, now: float) -> str:
    labels = service["spec"].get("selector") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>"


RESOURCES = (
    Resource(
        kind="Service",
        plural="services",
        short=("svc",),
        categories=("all",),
        status=True,
        subresources=("proxy",),
        returned=True,
        name_rule="label",
        schema=whole(_SPEC, required=False),
        prepare=prepare,
        check=lambda new, old: list(service_problems(new, old)),
        prepare_status=prepare_status,
        check_status=status_problems,
        fields=fields,
        field_names=("spec.clusterIP", "spec.type"),
        columns=(
            NAME,
            Column("Type", lambda obj, now: obj["spec"].get("type")),
            Column("Cluster-IP", lambda obj, now: obj["spec"].get("clusterIP") or "<none>"),
            Column("External-IP", cells.outer_address),
            Column("Port(s)", cells.service_ports),
            AGE,
            Column("Selector", selector_text, priority=1),
        ),
    ),
)
