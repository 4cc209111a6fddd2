"""EndpointSlices: defaults and validation. The workloads' controller writes them; nothing here reads hints or zones."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from trainyard.api_types.defaults import set_defaults
from trainyard.api_types.validators import validate_ip
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin import columns
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Resource


def prepare(new: Json, old: Json | None, context: RequestContext) -> None:
    """The defaults of an EndpointSlice."""
    for field in ("endpoints", "ports"):
        new[field] = new.get(field) or None  # an empty list is stored as null
    for endpoint in new["endpoints"] or ():
        set_defaults(endpoint, conditions={})
    for port in new["ports"] or ():
        set_defaults(port, name="", protocol="TCP")


def _slice_problems(new: Json, old: Json | None) -> Iterator[Problem]:
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
        generation=True,
        immutable=("addressType",),
        prepare=prepare,
        check=lambda new, old: list(_slice_problems(new, old)),
        columns=columns.SLICE,
    ),
)
