"""What the real server refuses of the small types: Leases, EndpointSlices.

Each is a function of (new, old or None) that gives problems; the types have been checked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import name_problem
from trainyard.server.strategies.refusing import one_of

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


def lease_problems(new: Json, old: Json | None) -> list[Problem]:
    spec, found = new.get("spec") or {}, []
    seconds, moves = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(Problem("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if moves is not None and moves < 0:
        text = f"Invalid value: {moves}: must be greater than or equal to 0"
        found.append(Problem("spec.leaseTransitions", text))
    return found


def slice_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    kind = new.get("addressType")
    if kind not in ADDRESS_TYPES:
        yield from one_of(kind or "", ADDRESS_TYPES, "addressType")
        return
    if old is not None and old.get("addressType") != kind:
        yield Problem("addressType", f"Invalid value: {shown(kind)}: field is immutable")
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        path = f"endpoints[{index}].addresses"
        addresses = endpoint.get("addresses") or []
        if not addresses:
            yield Problem(path, "Required value")
        for at, address in enumerate(addresses):
            yield from _address(kind, address, path, at)


def _address(kind: str, address: Any, path: str, at: int) -> Iterator[Problem]:
    if kind == "FQDN":
        if bad := name_problem(str(address), "subdomain", f"{path}[{at}]"):
            yield bad
        return
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        found = None
    if found is None or f"IPv{found.version}" != kind:
        yield Problem(path, f"Invalid value: {shown(address)}: must be an {kind} address")
    if found is not None and found.is_loopback:
        text = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
        yield Problem(f"{path}[{at}]", f"Invalid value: {shown(address)}: {text}")
