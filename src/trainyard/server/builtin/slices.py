"""EndpointSlices: defaults and validation. The workloads' controller writes them; nothing here reads hints or zones."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.builtin.defaults import set_defaults
from trainyard.server.builtin.validators import validate_ip
from trainyard.server.registry.context import RequestContext
from trainyard.server.registry.resources import Resource


def prepare(new: Json, old: Json | None, site: RequestContext) -> None:
    for field in ("endpoints", "ports"):
        new[field] = new.get(field) or None  # an empty list is stored as null
    for endpoint in new["endpoints"] or ():
        set_defaults(endpoint, conditions={})
    for port in new["ports"] or ():
        set_defaults(port, name="", protocol="TCP")
    old_generation = 0 if old is None else old["metadata"].get("generation") or 0
    is_changed = old is None or not json_equal(_generation_fields(new), _generation_fields(old))
    new["metadata"]["generation"] = old_generation + is_changed


def _generation_fields(endpoint_slice: Json) -> Json:
    """The fields whose change increments metadata.generation."""
    values = {field: endpoint_slice.get(field) or None for field in ("addressType", "endpoints", "ports")}
    return {**values, "labels": endpoint_slice["metadata"].get("labels") or None}


def slice_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    if (address_type := new.get("addressType")) not in ("IPv4", "IPv6"):
        return
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        for address_index, address in enumerate(endpoint.get("addresses") or ()):
            yield from _address_problems(address, address_type, f"endpoints[{index}].addresses", address_index)


def _address_problems(address: str, address_type: str, where: str, index: int) -> Iterator[Problem]:
    if problems := list(validate_ip(address, f"{where}[{index}]")):
        yield from problems
    elif f"IPv{ipaddress.ip_address(address).version}" != address_type:
        yield Problem(where, f"Invalid value: {json_text(address)}: must be an {address_type} address")


RESOURCES = (
    Resource(
        group="discovery.k8s.io",
        kind="EndpointSlice",
        plural="endpointslices",
        immutable=("addressType",),
        prepare=prepare,
        check=lambda new, old: list(slice_problems(new, old)),
        columns=columns.SLICE,
    ),
)
