"""EndpointSlices: defaulting, generation, validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.schema import Schema
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.builtin.addresses import ip_problems, non_special_ip_problems, parse_ip
from trainyard.server.builtin.schema_builders import FREE, STRING, list_of, obj, set_defaults
from trainyard.server.builtin.validators import PROTOCOLS, too_many, validate_enum, validate_qualified_name
from trainyard.server.registry.context import RequestContext
from trainyard.server.registry.metadata import label_problems, name_problem
from trainyard.server.registry.resources import Resource

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MAX_ENDPOINTS, MOST_ADDRESSES, MOST_HINTS = 1000, 100, 8
_DEPRECATED = "spec.addressType: FQDN endpoints are deprecated"


def prepare(new: Json, old: Json | None, site: RequestContext) -> None:
    for field in ("endpoints", "ports"):
        new[field] = new.get(field) or None  # an empty list is stored as null
    for endpoint in new["endpoints"] or ():
        set_defaults(endpoint, conditions={})
    for port in new["ports"] or ():
        set_defaults(port, name="", protocol="TCP")
    old_generation = 0 if old is None else old["metadata"].get("generation") or 0
    new["metadata"]["generation"] = old_generation + (
        old is None or not json_equal(_generation_fields(new), _generation_fields(old))
    )
    for endpoint in new["endpoints"] or ():
        endpoint.pop("deprecatedTopology", None)
    if old is None and new.get("addressType") == "FQDN":
        site.warnings.append(_DEPRECATED)


def _generation_fields(endpoint_slice: Json) -> Json:
    """The fields whose change increments metadata.generation."""
    values = {field: endpoint_slice.get(field) or None for field in ("addressType", "endpoints", "ports")}
    return {**values, "labels": endpoint_slice["metadata"].get("labels") or None}


def slice_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    address_type = new.get("addressType") or ""
    if not address_type:
        yield Problem("addressType", "Required value")
    else:
        yield from validate_enum(address_type, ADDRESS_TYPES, "addressType")
    if old is not None and old.get("addressType") != address_type:
        yield Problem("addressType", f"Invalid value: {json_text(address_type)}: field is immutable")
    endpoints = new.get("endpoints") or ()
    # Addresses that the stored slice already has were validated when they were written.
    old_addresses = [endpoint.get("addresses") for endpoint in (old or {}).get("endpoints") or ()]
    if len(endpoints) > MAX_ENDPOINTS:
        yield too_many(endpoints, MAX_ENDPOINTS, "endpoints")
    else:
        for index, endpoint in enumerate(endpoints):
            yield from _endpoint(endpoint, address_type, f"endpoints[{index}]", old_addresses)
    yield from _ports(new.get("ports") or ())


def _endpoint(endpoint: Json, address_type: str, here: str, old_addresses: list[Any]) -> Iterator[Problem]:
    addresses, where = endpoint.get("addresses") or (), f"{here}.addresses"
    if not addresses:
        yield Problem(where, "Required value")
    elif len(addresses) > MOST_ADDRESSES:
        yield too_many(addresses, MOST_ADDRESSES, where)
    for index, address in enumerate(addresses if addresses not in old_addresses else ()):
        if address_type == "FQDN":
            yield from _fqdn_problems(address, f"{where}[{index}]")
        elif address_type in ADDRESS_TYPES:
            yield from _address(address, address_type, where, index)
    for field, rule in (("nodeName", "subdomain"), ("hostname", "label")):
        name = endpoint.get(field)
        if name is not None and (problem := name_problem(name, rule, f"{here}.{field}")):
            yield problem
    if hints := endpoint.get("hints"):
        yield from _hints(hints, f"{here}.hints")


def _address(address: str, address_type: str, where: str, index: int) -> Iterator[Problem]:
    problems = list(ip_problems(address, f"{where}[{index}]", canonical=address_type == "IPv6"))
    yield from problems
    if problems:
        return
    parsed = parse_ip(address)
    if parsed is not None and f"IPv{parsed.version}" != address_type:
        yield Problem(where, f"Invalid value: {json_text(address)}: must be an {address_type} address")
    yield from non_special_ip_problems(address, f"{where}[{index}]")


def _fqdn_problems(name: str, path: str) -> Iterator[Problem]:
    """Problems of a fully qualified domain name; a trailing dot is allowed."""
    if not name:
        yield Problem(path, "Required value")
    elif problem := name_problem(name.removesuffix("."), "subdomain", path):
        yield problem
    elif "." not in name.removesuffix("."):
        text = "should be a domain with at least two segments separated by dots"
        yield Problem(path, f"Invalid value: {json_text(name)}: {text}")
    else:
        parts = (name_problem(part, "label", path) for part in name.removesuffix(".").split("."))
        yield from [problem for problem in parts if problem][:1]


def _hints(hints: Json, here: str) -> Iterator[Problem]:
    """Problems of the topology hints of an endpoint."""
    for field in ("forZones", "forNodes"):
        items, where = hints.get(field) or (), f"{here}.{field}"
        names: set[str] = set()
        if len(items) > MOST_HINTS:
            yield too_many(items, MOST_HINTS, where)
            return
        for index, item in enumerate(items):
            name, path = item.get("name") or "", f"{where}[{index}].name"
            if name in names:
                yield Problem(path, f"Duplicate value: {json_text(name)}")
            names.add(name)
            if field == "forZones":
                yield from label_problems({"key": name}, path)
            elif problem := name_problem(name, "subdomain", path):
                yield problem


def _ports(ports: Sequence[Json]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"ports[{index}]", port.get("name") or ""
        if name in names:
            yield Problem(f"{here}.name", f"Duplicate value: {json_text(name)}")
        if name and (problem := name_problem(name, "label", f"{here}.name")):
            yield problem
        names.add(name)
        yield from validate_enum(port.get("protocol"), PROTOCOLS, f"{here}.protocol")
        if (protocol := port.get("appProtocol")) is not None:
            yield from validate_qualified_name(protocol, f"{here}.appProtocol")


RESOURCES = (
    Resource(
        group="discovery.k8s.io",
        kind="EndpointSlice",
        plural="endpointslices",
        schema=Schema.trusted(obj(endpoints=list_of(FREE), ports=list_of(FREE), addressType=STRING)),
        prepare=prepare,
        check=lambda new, old: list(slice_problems(new, old)),
        columns=columns.SLICE,
    ),
)
