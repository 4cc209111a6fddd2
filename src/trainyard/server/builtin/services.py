"""Services: defaulting and allocation of cluster IPs. The validation is in service_rules.py and
service_addresses.py."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server import errors
from trainyard.server.builtin import columns
from trainyard.server.builtin.schema_builders import (
    FREE,
    PAIRS,
    STRING,
    list_of,
    obj,
    resource_schema,
    set_defaults,
    set_defaults_for_zero,
    string_or_empty,
)
from trainyard.server.builtin.service_addresses import (
    EXTERNAL_NAME,
    EXTERNAL_TYPES,
    FAMILIES,
    address_problems,
    is_headless_without_selector,
    no_free_address_problem,
    outside_service_cidr,
)
from trainyard.server.builtin.service_rules import prepare_status, service_problems, service_warnings, status_problems
from trainyard.server.registry.context import RequestContext
from trainyard.server.registry.resources import Column, Resource
from trainyard.server.registry.tables import AGE, NAME

DEFAULT_CLIENT_IP_TIMEOUT = 10800
_SPEC = obj(selector=PAIRS, type=STRING, clusterIP=STRING, ports=list_of(FREE))
_OMITTED_WHEN_EMPTY = ("clusterIP", "externalName", "loadBalancerIP", "externalTrafficPolicy", "healthCheckNodePort")
_ADDRESS_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def prepare(new: Json, old: Json | None, site: RequestContext) -> None:
    set_defaults(new, spec={})
    spec, old_spec = new["spec"], (old or {}).get("spec") or {}
    _drop_empty(spec)
    set_defaults_for_zero(spec, type="ClusterIP", sessionAffinity="None")
    _fill_ports(spec)
    _fill_policies(spec)
    if old is None:
        new["status"] = {"loadBalancer": {}}
    elif spec["type"] == EXTERNAL_NAME and old_spec["type"] != EXTERNAL_NAME:
        _drop_unchanged(spec, old_spec, *_ADDRESS_FIELDS)
    elif old_spec["type"] != EXTERNAL_NAME:
        _patch_allocated_values(spec, old_spec)
    _drop_type_dependent_fields(spec, old_spec)
    if old_spec.get("type") == "LoadBalancer" != spec["type"]:
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
    if spec["type"] == EXTERNAL_NAME and spec.get("internalTrafficPolicy") in ("Cluster", "Local"):
        del spec["internalTrafficPolicy"]
    _allocate(new, old_spec, site)
    site.warnings.extend(service_warnings(new))


def _drop_empty(spec: Json) -> None:
    """Removes fields that are "", 0 or false."""
    for field in _OMITTED_WHEN_EMPTY:
        if not spec.get(field):
            spec.pop(field, None)
    if not spec.get("publishNotReadyAddresses"):
        spec.pop("publishNotReadyAddresses", None)
    for port in spec.get("ports") or ():
        for field in ("name", "nodePort"):
            if not port.get(field):
                port.pop(field, None)


def _fill_ports(spec: Json) -> None:
    for port in spec.get("ports") or ():
        set_defaults(port, port=0)
        set_defaults_for_zero(port, protocol="TCP", targetPort=port["port"])


def _fill_policies(spec: Json) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        sticky = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if sticky.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": DEFAULT_CLIENT_IP_TIMEOUT}}
    if spec["type"] in ("ClusterIP", *EXTERNAL_TYPES):
        set_defaults(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in EXTERNAL_TYPES or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        set_defaults(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        set_defaults(spec, allocateLoadBalancerNodePorts=True)


def _patch_allocated_values(spec: Json, old_spec: Json) -> None:
    """Copies allocated values of the stored Service that the update omits."""
    set_defaults(spec, clusterIP=old_spec.get("clusterIP"))
    if spec["clusterIP"] == old_spec.get("clusterIP"):
        set_defaults_for_zero(spec, clusterIPs=old_spec.get("clusterIPs"))
    set_defaults_for_zero(spec, ipFamilies=old_spec.get("ipFamilies"))
    if spec.get("ipFamilyPolicy") == "SingleStack" and spec["ipFamilies"] == old_spec.get("ipFamilies"):
        spec["ipFamilies"] = spec["ipFamilies"][:1]
    set_defaults(spec, ipFamilyPolicy=old_spec.get("ipFamilyPolicy"))
    if spec["type"] in EXTERNAL_TYPES and old_spec["type"] in EXTERNAL_TYPES:
        node_ports = _node_ports(old_spec)
        for port in spec.get("ports") or ():
            if number := node_ports.get((port["protocol"], port["port"])):
                set_defaults(port, nodePort=number)


def _node_ports(spec: Json) -> dict[tuple[str, int], int | None]:
    """(protocol, port) -> node port."""
    return {(port["protocol"], port["port"]): port.get("nodePort") for port in spec.get("ports") or ()}


def _drop_unchanged(spec: Json, old_spec: Json, *fields: str) -> None:
    """Removes fields whose value is that of the stored spec."""
    for field in fields:
        if field in spec and spec[field] == old_spec.get(field):
            del spec[field]


def _drop_type_dependent_fields(spec: Json, old_spec: Json) -> None:
    service_type, old_type = spec["type"], old_spec.get("type")
    if old_type in EXTERNAL_TYPES and service_type not in EXTERNAL_TYPES:
        node_ports = _node_ports(old_spec)
        for port in spec.get("ports") or ():
            if port.get("nodePort") == node_ports.get((port["protocol"], port["port"])):
                port.pop("nodePort", None)
    if old_type == "LoadBalancer" and service_type != "LoadBalancer":
        _drop_unchanged(spec, old_spec, "allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort")
    if (
        old_spec
        and service_type not in EXTERNAL_TYPES
        and not (service_type == "ClusterIP" and spec.get("externalIPs"))
    ):
        _drop_unchanged(spec, old_spec, "externalTrafficPolicy")


def _allocate(new: Json, old_spec: Json, site: RequestContext) -> None:
    """Sets cluster IP and IP families. Raises StatusError 422 for their problems, before all other validation."""
    spec = new["spec"]
    if spec.get("clusterIP"):
        set_defaults_for_zero(spec, clusterIPs=[spec["clusterIP"]])
    _reject(new, list(address_problems(spec, old_spec)))
    if spec["type"] == EXTERNAL_NAME:
        return
    families = spec.get("ipFamilies") or []
    if is_headless_without_selector(spec) and not old_spec.get("clusterIP"):
        set_defaults(spec, ipFamilyPolicy="RequireDualStack")
        if spec["ipFamilyPolicy"] != "SingleStack":
            families = [*families, *[family for family in FAMILIES if family not in families]]
    set_defaults(spec, ipFamilyPolicy="SingleStack")
    spec["ipFamilies"] = families or ["IPv4"]
    address = spec.get("clusterIP")
    if not address:
        address = spec["clusterIP"] = site.addresses.allocate()
        spec["clusterIPs"] = [address]
        if not address:
            _reject(new, [no_free_address_problem()])
    elif address != "None" and not old_spec.get("clusterIP"):
        if (problem := outside_service_cidr(address)) is not None:
            _reject(new, [problem])
        if site.addresses.is_allocated(address):
            text = "failed to allocate: provided IP is already allocated"
            _reject(new, [Problem("spec.clusterIPs", f"Invalid value: {json_text([address])}: {text}")])


def _reject(new: Json, problems: list[Problem]) -> None:
    if problems:
        raise errors.invalid("Service", "", new["metadata"].get("name") or "", problems)


def fields(service: Json) -> Mapping[str, str]:
    spec = service.get("spec") or {}
    return {"spec.clusterIP": string_or_empty(spec.get("clusterIP")), "spec.type": string_or_empty(spec.get("type"))}


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
        returns_deleted=True,
        name_rule="label",
        schema=resource_schema(_SPEC, required=False),
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
            Column("External-IP", columns.external_ip),
            Column("Port(s)", columns.service_ports),
            AGE,
            Column("Selector", selector_text, priority=1),
        ),
    ),
)
