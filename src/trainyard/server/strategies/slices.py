"""EndpointSlices: where the pods behind a Service are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.schema.checks import shown
from trainyard.server.metadata import label_problems, name_problem
from trainyard.server.resources import Resource
from trainyard.server.same import same
from trainyard.server.site import Site
from trainyard.server.strategies import cells
from trainyard.server.strategies.addresses import known, reachable, settled
from trainyard.server.strategies.refusing import PROTOCOLS, keyed, one_of, too_many
from trainyard.server.strategies.shapes import FREE, STRING, fill, many, obj

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS, MOST_ADDRESSES, MOST_HINTS = 1000, 100, 8
_DEPRECATED = "spec.addressType: FQDN endpoints are deprecated"


def prepare(new: Json, old: Json | None, site: Site) -> None:
    for word in ("endpoints", "ports"):
        new[word] = new.get(word) or None  # the one way to write that there are none
    for endpoint in new["endpoints"] or ():
        fill(endpoint, conditions={})
    for port in new["ports"] or ():
        fill(port, name="", protocol="TCP")
    before = 0 if old is None else old["metadata"].get("generation") or 0
    new["metadata"]["generation"] = before + (old is None or not same(_counted(new), _counted(old)))
    for endpoint in new["endpoints"] or ():
        endpoint.pop("deprecatedTopology", None)
    if old is None and new.get("addressType") == "FQDN":
        site.warnings.append(_DEPRECATED)


def _counted(one: Json) -> Json:
    """What the generation counts the versions of."""
    told = {word: one.get(word) or None for word in ("addressType", "endpoints", "ports")}
    return {**told, "labels": one["metadata"].get("labels") or None}


def slice_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    kind = new.get("addressType") or ""
    if not kind:
        yield Problem("addressType", "Required value")
    else:
        yield from one_of(kind, ADDRESS_TYPES, "addressType")
    if old is not None and old.get("addressType") != kind:
        yield Problem("addressType", f"Invalid value: {shown(kind)}: field is immutable")
    endpoints = new.get("endpoints") or ()
    seen = [one.get("addresses") for one in (old or {}).get("endpoints") or ()]  # these have been judged
    if len(endpoints) > MOST_ENDPOINTS:
        yield too_many(endpoints, MOST_ENDPOINTS, "endpoints")
    else:
        for index, endpoint in enumerate(endpoints):
            yield from _endpoint(endpoint, kind, f"endpoints[{index}]", seen)
    yield from _ports(new.get("ports") or ())


def _endpoint(endpoint: Json, kind: str, here: str, seen: list[Any]) -> Iterator[Problem]:
    addresses, where = endpoint.get("addresses") or (), f"{here}.addresses"
    if not addresses:
        yield Problem(where, "Required value")
    elif len(addresses) > MOST_ADDRESSES:
        yield too_many(addresses, MOST_ADDRESSES, where)
    for index, address in enumerate(addresses if addresses not in seen else ()):
        if kind == "FQDN":
            yield from _full_name(address, f"{where}[{index}]")
        elif kind in ADDRESS_TYPES:
            yield from _address(address, kind, where, index)
    for word, rule in (("nodeName", "subdomain"), ("hostname", "label")):
        name = endpoint.get(word)
        if name is not None and (bad := name_problem(name, rule, f"{here}.{word}")):
            yield bad
    if hints := endpoint.get("hints"):
        yield from _hints(hints, f"{here}.hints")


def _address(address: str, kind: str, where: str, index: int) -> Iterator[Problem]:
    wrong = list(settled(address, f"{where}[{index}]", canonical=kind == "IPv6"))
    yield from wrong
    if wrong:
        return
    found = known(address)
    if found is not None and f"IPv{found.version}" != kind:
        yield Problem(where, f"Invalid value: {shown(address)}: must be an {kind} address")
    yield from reachable(address, f"{where}[{index}]")


def _full_name(name: str, path: str) -> Iterator[Problem]:
    """What is wrong with the name of a host, to the last of its domains."""
    if not name:
        yield Problem(path, "Required value")
    elif bad := name_problem(name.removesuffix("."), "subdomain", path):
        yield bad
    elif "." not in name.removesuffix("."):
        text = "should be a domain with at least two segments separated by dots"
        yield Problem(path, f"Invalid value: {shown(name)}: {text}")
    else:
        parts = (name_problem(part, "label", path) for part in name.removesuffix(".").split("."))
        yield from [bad for bad in parts if bad][:1]


def _hints(hints: Json, here: str) -> Iterator[Problem]:
    """For which zones and nodes an endpoint is."""
    for word in ("forZones", "forNodes"):
        items, where = hints.get(word) or (), f"{here}.{word}"
        names: set[str] = set()
        if len(items) > MOST_HINTS:
            yield too_many(items, MOST_HINTS, where)
            return
        for index, item in enumerate(items):
            name, path = item.get("name") or "", f"{where}[{index}].name"
            if name in names:
                yield Problem(path, f"Duplicate value: {shown(name)}")
            names.add(name)
            if word == "forZones":
                yield from label_problems({"key": name}, path)
            elif bad := name_problem(name, "subdomain", path):
                yield bad


def _ports(ports: Sequence[Json]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"ports[{index}]", port.get("name") or ""
        if name in names:
            yield Problem(f"{here}.name", f"Duplicate value: {shown(name)}")
        if name and (bad := name_problem(name, "label", f"{here}.name")):
            yield bad
        names.add(name)
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{here}.protocol")
        if (asked := port.get("appProtocol")) is not None:
            yield from keyed(asked, f"{here}.appProtocol")


RESOURCES = (
    Resource(
        group="discovery.k8s.io",
        kind="EndpointSlice",
        plural="endpointslices",
        schema=Schema.ours(obj(endpoints=many(FREE), ports=many(FREE), addressType=STRING)),
        prepare=prepare,
        check=lambda new, old: list(slice_problems(new, old)),
        columns=cells.SLICE,
    ),
)
