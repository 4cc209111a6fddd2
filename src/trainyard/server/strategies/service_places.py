"""Where a Service is to be: its addresses and their families. These mistakes are told before all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import shown
from trainyard.server.site import SERVICES
from trainyard.server.strategies.addresses import known, settled
from trainyard.server.strategies.refusing import one_of

POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
FAMILIES = ("IPv4", "IPv6")
NAME_OF_ANOTHER = "ExternalName"
EXTERNAL = ("NodePort", "LoadBalancer")
_MOST = 2


def type_problems(spec: Json, before: Json) -> Iterator[Problem]:
    """What does not go with the type."""
    if spec["type"] == NAME_OF_ANOTHER and before.get("type", NAME_OF_ANOTHER) == NAME_OF_ANOTHER:
        for word in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(word):
                yield Problem(f"spec.{word}", "Forbidden: may not be set for ExternalName services")
    if spec["type"] in EXTERNAL and spec.get("clusterIP") == "None":
        text = f"may not be set to 'None' for {spec['type']} services"
        yield Problem("spec.clusterIPs[0]", f'Invalid value: "None": {text}')


def place_problems(spec: Json, before: Json) -> Iterator[Problem]:
    """`before`: the spec that is written over, {} when there is none."""
    if spec["type"] == NAME_OF_ANOTHER:
        return
    found = [*_families(spec), *_addresses(spec, before.get("clusterIPs") or ()), *_node_ports(spec)]
    yield from found
    if not found:
        yield from _not_here(spec, before)


def anywhere(spec: Json) -> bool:
    """Without an address and without pods of its own it may be of any family."""
    return spec.get("clusterIP") == "None" and not spec.get("selector")


def _families(spec: Json) -> Iterator[Problem]:
    families = spec.get("ipFamilies") or ()
    for index, family in enumerate(families):
        path = f"spec.ipFamilies[{index}]"
        yield from one_of(family, FAMILIES, path)
        if family in families[:index]:
            yield Problem(path, f"Duplicate value: {shown(family)}")
    policy = spec.get("ipFamilyPolicy") or ("" if anywhere(spec) or "ipFamilyPolicy" in spec else "SingleStack")
    if policy or "ipFamilyPolicy" in spec:
        yield from one_of(policy, POLICIES, "spec.ipFamilyPolicy")
    if len(families) > 1 and policy == "SingleStack" and len({*families}) == len(families):
        yield _several("IP families")


def _several(what: str) -> Problem:
    text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
    return Problem("spec.ipFamilyPolicy", f'Invalid value: "SingleStack": {text}')


def _addresses(spec: Json, before: Sequence[str]) -> Iterator[Problem]:
    first, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    told = f"Invalid value: {encode(addresses).decode()}"
    if len(addresses) > _MOST:
        yield Problem("spec.clusterIPs", f"{told}: may only hold up to {_MOST} values")
    if addresses and not first:
        yield Problem("spec.clusterIPs", f"{told}: must be empty when `clusterIP` is not specified")
    elif addresses and addresses[0] != first:
        yield Problem("spec.clusterIPs", f"{told}: first value must match `clusterIP`")
    if "None" in addresses and len(addresses) > 1:
        yield Problem("spec.clusterIPs", f"{told}: 'None' must be the first and only value")
    versions = [found.version for one in addresses if (found := known(one)) is not None]
    if len({*versions}) < len(versions) == _MOST:
        yield Problem("spec.clusterIPs", f"{told}: may specify no more than one IP for each IP family")
    for index, one in enumerate(addresses):
        path = f"spec.clusterIPs[{index}]"
        if (one != "None" or index) and (one != "None" or one not in before):
            yield from list(settled(one, path)) or _of_family(one, spec, index)


def _node_ports(spec: Json) -> Iterator[Problem]:
    """Nobody here gives them out, but no two ports have the same."""
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort")
        if number and spec["type"] in EXTERNAL:
            if (port["protocol"], number) in seen:
                text = f"Invalid value: {number}: provided port is already allocated"
                yield Problem(f"spec.ports[{index}].nodePort", text)
            seen.add((port["protocol"], number))


def _of_family(address: str, spec: Json, index: int) -> Iterator[Problem]:
    """An address is of the family that the Service names at its place."""
    families, found = spec.get("ipFamilies") or (), known(address)
    family = families[index] if index < len(families) else ""
    if found is not None and family in FAMILIES and family != f"IPv{found.version}":
        text = f"expected an {family} address, as ipFamilies[{index}] says"
        yield Problem(f"spec.clusterIPs[{index}]", f"Invalid value: {shown(address)}: {text}")


def _not_here(spec: Json, before: Json) -> Iterator[Problem]:
    """What would be right where there are addresses of both families."""
    if anywhere(spec):
        return
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy") or "SingleStack"
    addresses = spec.get("clusterIPs") or []
    if len(addresses) > 1 and policy == "SingleStack":
        yield _several("cluster IPs")
    elif policy == "RequireDualStack":
        text = "this cluster is not configured for dual-stack services"
        yield Problem("spec.ipFamilyPolicy", f"Invalid value: {shown(policy)}: {text}")
    for index, family in enumerate(families):
        if family != FAMILIES[0] and families != before.get("ipFamilies"):
            text = f"Invalid value: {shown(family)}: not configured on this cluster"
            yield Problem(f"spec.ipFamilies[{index}]", text)
    for index, one in enumerate(addresses):
        found = known(one)
        if index >= len(families) and found is not None and found.version != 4:
            text = f"Invalid value: {shown(one)}: IPv6 is not configured on this cluster; leave it out"
            yield Problem(f"spec.clusterIPs[{index}]", text)


def none_free() -> Problem:
    return Problem("spec.clusterIP", f"Invalid value: no address of {SERVICES} is free; delete services")


def foreign(address: str) -> Problem | None:
    """A problem for an address that is not one of ours."""
    found = known(address)
    if found is not None and found in SERVICES:
        return None
    text = f"the provided IP is not in the valid range {SERVICES}; leave it out, or write None for a headless service"
    return Problem("spec.clusterIPs", f"Invalid value: {shown([address])}: {text}")
