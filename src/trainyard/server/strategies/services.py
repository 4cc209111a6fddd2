"""Services: an address each, unless they are headless."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.resources import Column, Resource
from trainyard.server.site import SERVICES, Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.shapes import MIXED, PAIRS, STRING, fill, many, obj, one_of, text, whole
from trainyard.server.tables import AGE, NAME

_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_SPEC = obj(
    selector=PAIRS,
    type=one_of("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
    clusterIP=STRING,
    ports=many(obj(("port",), port=_PORT, targetPort=MIXED, name=STRING, protocol=one_of("TCP", "UDP", "SCTP"))),
)


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"]
    fill(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        fill(port, protocol="TCP", targetPort=port["port"])
    if old is not None:
        fill(spec, clusterIP=old["spec"].get("clusterIP"), clusterIPs=old["spec"].get("clusterIPs"))
        fill(spec, ipFamilies=old["spec"].get("ipFamilies"), ipFamilyPolicy=old["spec"].get("ipFamilyPolicy"))
        return
    if spec["type"] != "ExternalName":
        if not spec.get("clusterIP"):
            spec["clusterIP"] = site.addresses.next()
        elif _ours(spec["clusterIP"]) and site.addresses.taken(spec["clusterIP"]):
            new["status"] = {"clash": True}
            return
        fill(spec, clusterIPs=[spec["clusterIP"]], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    new["status"] = {"loadBalancer": {}}


def _ours(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in SERVICES
    except ValueError:
        return False


def check(new: Json, old: Json | None) -> list[Problem]:
    spec, found = new["spec"], []
    address = spec.get("clusterIP")
    ports = spec.get("ports") or []
    if not ports and address != "None" and spec["type"] != "ExternalName":
        found.append(Problem("spec.ports", "Required value: write at least one port"))
    if (new.get("status") or {}).get("clash"):
        found.append(Problem("spec.clusterIPs", f"Invalid value: {shown(address)}: provided IP is already allocated"))
    elif address and address != "None" and not _ours(address):
        found.append(_foreign(address))
    if spec["type"] != "ExternalName" and not address:
        found.append(Problem("spec.clusterIP", f"Invalid value: no address of {SERVICES} is free; delete services"))
    if old is not None and old["spec"].get("clusterIP") not in ("", None, address):
        text = f"Invalid value: {shown(address)}: may not change once set"
        found.append(Problem("spec.clusterIPs[0]", text))
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        found.append(Problem("spec.externalName", "Required value"))
    found += _same_ports(ports)
    names = [port.get("name") or "" for port in ports]
    for index, name in enumerate(names):
        if len(ports) > 1 and not name:
            found.append(Problem(f"spec.ports[{index}].name", "Required value: with several ports each needs a name"))
        if name and name in names[:index]:
            found.append(Problem(f"spec.ports[{index}].name", f"Duplicate value: {shown(name)}"))
    return found


def _foreign(address: str) -> Problem:
    """An address that is none, or not one of ours."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return Problem("spec.clusterIPs[0]", f"Invalid value: {shown(address)}: must be a valid IP address")
    text = f"the provided IP is not in the valid range {SERVICES}; leave it out, or write None for a headless service"
    return Problem("spec.clusterIPs", f"Invalid value: {shown([address])}: {text}")


def _same_ports(ports: list[Json]) -> list[Problem]:
    seen: set[tuple[str, int]] = set()
    found = []
    for index, port in enumerate(ports):
        name = (port["protocol"], port["port"])
        if name in seen:
            value = shown({"port": port["port"], "protocol": port["protocol"]})
            found.append(Problem(f"spec.ports[{index}]", f"Duplicate value: {value}"))
        seen.add(name)
    return found


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
        name_rule="label",
        schema=whole(_SPEC),
        prepare=prepare,
        check=check,
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
