"""Services: defaults, cluster IPs, and the validation of ports, selectors and names.

One node acts on no load balancer, no second IP family and no session affinity: their fields are stored as they are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero, string_or_empty
from trainyard.api_types.names import label_problems
from trainyard.api_types.pod_probes import port_problems
from trainyard.api_types.validators import validate_ip, validate_name
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.model import errors
from trainyard.server.model.context import SERVICES, RequestContext
from trainyard.server.model.resources import Column, Resource
from trainyard.server.proxy import targets
from trainyard.server.registry.tables import AGE, NAME

EXTERNAL_NAME = "ExternalName"
EXTERNAL_TYPES = ("NodePort", "LoadBalancer")
_ADDRESS_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of a Service; allocates its clusterIP."""
    set_defaults(new, spec={})
    spec, old_spec = new["spec"], (old or {}).get("spec") or {}
    set_defaults_for_zero(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        set_defaults(port, port=0)
        set_defaults_for_zero(port, protocol="TCP", targetPort=port["port"])
    if old is None:
        new["status"] = {"loadBalancer": {}}
    if spec["type"] == EXTERNAL_NAME:
        for field in _ADDRESS_FIELDS:
            if field in spec and spec[field] in ("", old_spec.get(field)):
                del spec[field]
        return
    set_defaults(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in EXTERNAL_TYPES:
        set_defaults(spec, externalTrafficPolicy="Cluster")
    set_defaults_for_zero(spec, clusterIP=old_spec.get("clusterIP"), ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    _allocate(new, old_spec, context)


def _allocate(new: Json, old_spec: Json, context: RequestContext) -> None:
    """Set the cluster IP. Raises StatusError 422 for its problems, before all other validation."""
    spec = new["spec"]
    address = spec["clusterIP"] = spec.get("clusterIP") or context.addresses.allocate()
    set_defaults_for_zero(spec, clusterIPs=[address])
    if problems := list(_address_problems(spec, old_spec, context)):
        raise errors.invalid("Service", "", new["metadata"].get("name") or "", problems)


def _address_problems(spec: Json, old_spec: Json, context: RequestContext) -> Iterator[Problem]:
    address, addresses = spec["clusterIP"], spec["clusterIPs"]
    if addresses[0] != address:
        text = f"Invalid value: {json_text(addresses)}: first value must match `clusterIP`"
        yield Problem("spec.clusterIPs", text)
    elif not address:
        yield Problem("spec.clusterIP", f"Invalid value: no address of {SERVICES} is free; delete services")
    elif address != "None" and (problems := list(validate_ip(address, "spec.clusterIPs[0]"))):
        yield from problems
    elif address != "None" and not old_spec.get("clusterIP"):
        if (problem := outside_service_cidr(address)) is not None:
            yield problem
        elif context.addresses.is_allocated(address):
            text = "failed to allocate: provided IP is already allocated"
            yield Problem("spec.clusterIPs", f"Invalid value: {json_text(addresses)}: {text}")


def outside_service_cidr(address: str) -> Problem | None:
    """A problem for an IP address outside of the service CIDR."""
    if ipaddress.ip_address(address) in SERVICES:
        return None
    text = f"the provided IP is not in the valid range {SERVICES}; leave it out, or write None for a headless service"
    return Problem("spec.clusterIPs", f"Invalid value: {json_text([address])}: {text}")


def _service_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec, old_spec = new["spec"], (old or {}).get("spec") or {}
    yield from label_problems(spec.get("selector") or {}, "spec.selector")
    yield from _ports(spec)
    if spec["type"] == EXTERNAL_NAME:
        name = (spec.get("externalName") or "").removesuffix(".")
        if not name:
            yield Problem("spec.externalName", "Required value")
        yield from validate_name(name, "spec.externalName", "subdomain")
        return
    if spec["type"] in EXTERNAL_TYPES and spec["clusterIP"] == "None":
        text = f"may not be set to 'None' for {spec['type']} services"
        yield Problem("spec.clusterIPs[0]", f'Invalid value: "None": {text}')
    if (old_address := old_spec.get("clusterIP")) and spec["clusterIP"] != old_address:
        text = f"Invalid value: {json_text(spec['clusterIPs'])}: may not change once set"
        yield Problem("spec.clusterIPs[0]", text)


def _ports(spec: Json) -> Iterator[Problem]:
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != EXTERNAL_NAME:
        yield Problem("spec.ports", "Required value: write at least one port")
    names: set[str] = set()
    numbers: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        here, name, number = f"spec.ports[{index}]", port.get("name") or "", port["port"]
        if not name and len(ports) > 1:
            yield Problem(f"{here}.name", "Required value: with several ports each needs a name")
        yield from validate_name(name, f"{here}.name")
        if name and name in names:
            yield Problem(f"{here}.name", f"Duplicate value: {json_text(name)}")
        names.add(name)
        yield from port_problems(number, f"{here}.port")
        yield from port_problems(port["targetPort"], f"{here}.targetPort")
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            yield Problem(f"{here}.nodePort", "Forbidden: may not be used when `type` is 'ClusterIP'")
        if (port["protocol"], number) in numbers:
            yield Problem(here, f"Duplicate value: {json_text({'port': number, 'protocol': port['protocol']})}")
        numbers.add((port["protocol"], number))


def fields(service: Json) -> Mapping[str, str]:
    """The selectable fields of a Service."""
    spec = service.get("spec") or {}
    return {"spec.clusterIP": string_or_empty(spec.get("clusterIP")), "spec.type": string_or_empty(spec.get("type"))}


def selector_text(service: Json, now: float) -> str:
    """The cell SELECTOR of a Service, sorted by key."""
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
        proxy_port=targets.port_of_service,
        returns_deleted=True,
        name_rule="label",
        prepare=prepare,
        check=lambda new, old: list(_service_problems(new, old)),
        fields=fields,
        field_names=("spec.clusterIP", "spec.type"),
        columns=(
            NAME,
            Column("Type", lambda obj, now: obj["spec"].get("type")),
            Column("Cluster-IP", lambda obj, now: obj["spec"].get("clusterIP") or "<none>"),
            Column("External-IP", columns.external_ip),
            Column("Port(s)", columns.service_ports),
            AGE,
            Column("Selector", selector_text, priority=1),
        ),
    ),
)
