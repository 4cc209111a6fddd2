"""Validation of a Service's cluster IPs and IP families, which runs before all other validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import json_text
from trainyard.server.builtin.addresses import ip_problems, parse_ip
from trainyard.server.builtin.validators import validate_enum
from trainyard.server.registry.context import SERVICES

POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
FAMILIES = ("IPv4", "IPv6")
EXTERNAL_NAME = "ExternalName"
EXTERNAL_TYPES = ("NodePort", "LoadBalancer")
_MAX_CLUSTER_IPS = 2


def type_problems(spec: Json, old_spec: Json) -> Iterator[Problem]:
    """Problems of address fields that the Service type does not allow."""
    if spec["type"] == EXTERNAL_NAME and old_spec.get("type", EXTERNAL_NAME) == EXTERNAL_NAME:
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                yield Problem(f"spec.{field}", "Forbidden: may not be set for ExternalName services")
    if spec["type"] in EXTERNAL_TYPES and spec.get("clusterIP") == "None":
        text = f"may not be set to 'None' for {spec['type']} services"
        yield Problem("spec.clusterIPs[0]", f'Invalid value: "None": {text}')


def address_problems(spec: Json, old_spec: Json) -> Iterator[Problem]:
    """Problems of addresses, families and node ports. `old_spec`: the stored spec, {} on create."""
    if spec["type"] == EXTERNAL_NAME:
        return
    problems = [*_families(spec), *_addresses(spec, old_spec.get("clusterIPs") or ()), *_node_ports(spec)]
    yield from problems
    if not problems:
        yield from _unsupported_families(spec, old_spec)


def is_headless_without_selector(spec: Json) -> bool:
    """True for a headless Service without selector, which may have any IP families."""
    return spec.get("clusterIP") == "None" and not spec.get("selector")


def _families(spec: Json) -> Iterator[Problem]:
    families = spec.get("ipFamilies") or ()
    for index, family in enumerate(families):
        path = f"spec.ipFamilies[{index}]"
        yield from validate_enum(family, FAMILIES, path)
        if family in families[:index]:
            yield Problem(path, f"Duplicate value: {json_text(family)}")
    policy = spec.get("ipFamilyPolicy") or (
        "" if is_headless_without_selector(spec) or "ipFamilyPolicy" in spec else "SingleStack"
    )
    if policy or "ipFamilyPolicy" in spec:
        yield from validate_enum(policy, POLICIES, "spec.ipFamilyPolicy")
    if len(families) > 1 and policy == "SingleStack" and len({*families}) == len(families):
        yield _single_stack_problem("IP families")


def _single_stack_problem(items: str) -> Problem:
    text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {items} are specified"
    return Problem("spec.ipFamilyPolicy", f'Invalid value: "SingleStack": {text}')


def _addresses(spec: Json, old_addresses: Sequence[str]) -> Iterator[Problem]:
    first, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    prefix = f"Invalid value: {encode(addresses).decode()}"
    if len(addresses) > _MAX_CLUSTER_IPS:
        yield Problem("spec.clusterIPs", f"{prefix}: may only hold up to {_MAX_CLUSTER_IPS} values")
    if addresses and not first:
        yield Problem("spec.clusterIPs", f"{prefix}: must be empty when `clusterIP` is not specified")
    elif addresses and addresses[0] != first:
        yield Problem("spec.clusterIPs", f"{prefix}: first value must match `clusterIP`")
    if "None" in addresses and len(addresses) > 1:
        yield Problem("spec.clusterIPs", f"{prefix}: 'None' must be the first and only value")
    versions = [parsed.version for address in addresses if (parsed := parse_ip(address)) is not None]
    if len({*versions}) < len(versions) == _MAX_CLUSTER_IPS:
        yield Problem("spec.clusterIPs", f"{prefix}: may specify no more than one IP for each IP family")
    for index, address in enumerate(addresses):
        path = f"spec.clusterIPs[{index}]"
        if (address != "None" or index) and (address != "None" or address not in old_addresses):
            yield from list(ip_problems(address, path)) or _address_family_problems(address, spec, index)


def _node_ports(spec: Json) -> Iterator[Problem]:
    """Problems of node ports: no two ports may have the same one. Node ports are not allocated here."""
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort")
        if number and spec["type"] in EXTERNAL_TYPES:
            if (port["protocol"], number) in seen:
                text = f"Invalid value: {number}: provided port is already allocated"
                yield Problem(f"spec.ports[{index}].nodePort", text)
            seen.add((port["protocol"], number))


def _address_family_problems(address: str, spec: Json, index: int) -> Iterator[Problem]:
    """Problems of an address whose family is not that of `ipFamilies` at the same index."""
    families, parsed = spec.get("ipFamilies") or (), parse_ip(address)
    family = families[index] if index < len(families) else ""
    if parsed is not None and family in FAMILIES and family != f"IPv{parsed.version}":
        text = f"expected an {family} address, as ipFamilies[{index}] says"
        yield Problem(f"spec.clusterIPs[{index}]", f"Invalid value: {json_text(address)}: {text}")


def _unsupported_families(spec: Json, old_spec: Json) -> Iterator[Problem]:
    """Problems of families and policies that are only valid in a dual-stack cluster."""
    if is_headless_without_selector(spec):
        return
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy") or "SingleStack"
    addresses = spec.get("clusterIPs") or []
    if len(addresses) > 1 and policy == "SingleStack":
        yield _single_stack_problem("cluster IPs")
    elif policy == "RequireDualStack":
        text = "this cluster is not configured for dual-stack services"
        yield Problem("spec.ipFamilyPolicy", f"Invalid value: {json_text(policy)}: {text}")
    for index, family in enumerate(families):
        if family != FAMILIES[0] and families != old_spec.get("ipFamilies"):
            text = f"Invalid value: {json_text(family)}: not configured on this cluster"
            yield Problem(f"spec.ipFamilies[{index}]", text)
    for index, address in enumerate(addresses):
        parsed = parse_ip(address)
        if index >= len(families) and parsed is not None and parsed.version != 4:
            text = f"Invalid value: {json_text(address)}: IPv6 is not configured on this cluster; leave it out"
            yield Problem(f"spec.clusterIPs[{index}]", text)


def no_free_address_problem() -> Problem:
    return Problem("spec.clusterIP", f"Invalid value: no address of {SERVICES} is free; delete services")


def outside_service_cidr(address: str) -> Problem | None:
    """A problem for an address outside of the service CIDR."""
    parsed = parse_ip(address)
    if parsed is not None and parsed in SERVICES:
        return None
    text = f"the provided IP is not in the valid range {SERVICES}; leave it out, or write None for a headless service"
    return Problem("spec.clusterIPs", f"Invalid value: {json_text([address])}: {text}")
