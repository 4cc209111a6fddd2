"""Printer columns of nodes, claims, services, endpoints, events and CRDs, as kube-apiserver has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.api_types.defaults import string_or_empty
from trainyard.objects import Json
from trainyard.server.model.resources import Column
from trainyard.server.registry.tables import AGE, NAME, age_of_timestamp

MAX_SHOWN = 3
"""The number of addresses or ports of a list that a cell shows."""
_ROLE = "node-role.kubernetes.io/"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _spec(obj: Json) -> Json:
    return obj.get("spec") or {}


def _status(obj: Json) -> Json:
    return obj.get("status") or {}


def first_and_more(items: Sequence[str], nothing: str) -> str:
    """The first `MAX_SHOWN` items and the number of the others; `nothing` for an empty list."""
    more = f" + {len(items) - MAX_SHOWN} more..." if len(items) > MAX_SHOWN else ""
    return ",".join(items[:MAX_SHOWN]) + more or nothing


def phase(obj: Json, now: float) -> str:
    """`status.phase`, "" when unset."""
    return string_or_empty(_status(obj).get("phase"))


def _node_status(node: Json, now: float) -> str:
    ready_conditions = [
        condition for condition in _status(node).get("conditions") or () if condition.get("type") == "Ready"
    ]
    status = ("Ready" if ready_conditions[0].get("status") == "True" else "NotReady") if ready_conditions else "Unknown"
    return status + (",SchedulingDisabled" if _spec(node).get("unschedulable") else "")


def _roles(node: Json, now: float) -> str:
    labels = node["metadata"].get("labels") or {}
    names = {name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE)} - {""}
    if labels.get("kubernetes.io/role"):
        names.add(labels["kubernetes.io/role"])
    return ",".join(sorted(names)) or "<none>"


def _node_address_column(kind: str) -> Column:
    def cell(node: Json, now: float) -> str:
        addresses = (
            address["address"] for address in _status(node).get("addresses") or () if address.get("type") == kind
        )
        return next(addresses, "<none>")

    return Column(kind.replace("IP", "-IP"), cell, priority=1)


def _node_info_column(name: str, field: str) -> Column:
    def cell(node: Json, now: float) -> str:
        return string_or_empty((_status(node).get("nodeInfo") or {}).get(field)) or "<unknown>"

    return Column(name, cell, priority=1)


NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _roles),
    AGE,
    Column("Version", lambda obj, now: string_or_empty((_status(obj).get("nodeInfo") or {}).get("kubeletVersion"))),
    _node_address_column("InternalIP"),
    _node_address_column("ExternalIP"),
    _node_info_column("OS-Image", "osImage"),
    _node_info_column("Kernel-Version", "kernelVersion"),
    _node_info_column("Container-Runtime", "containerRuntimeVersion"),
)


def _claim_phase(claim: Json, now: float) -> str:
    return "Terminating" if "deletionTimestamp" in claim["metadata"] else phase(claim, now)


def _capacity(claim: Json, now: float) -> str:
    if not _spec(claim).get("volumeName"):
        return ""
    return string_or_empty((_status(claim).get("capacity") or {}).get("storage")) or "0"


def _access_modes(claim: Json, now: float) -> str:
    granted = set(_status(claim).get("accessModes") or ()) if _spec(claim).get("volumeName") else set()
    return ",".join(short for mode, short in _MODES.items() if mode in granted)


CLAIM = (
    NAME,
    Column("Status", _claim_phase),
    Column("Volume", lambda obj, now: string_or_empty(_spec(obj).get("volumeName"))),
    Column("Capacity", _capacity),
    Column("Access Modes", _access_modes),
    Column("StorageClass", lambda obj, now: string_or_empty(_spec(obj).get("storageClassName"))),
    Column(
        "VolumeAttributesClass",
        lambda obj, now: string_or_empty(_spec(obj).get("volumeAttributesClassName")) or "<unset>",
    ),
    AGE,
    Column("VolumeMode", lambda obj, now: string_or_empty(_spec(obj).get("volumeMode")) or "<unset>", priority=1),
)


def _endpoints(obj: Json, now: float) -> str:
    endpoints: list[str] = []
    for subset in obj.get("subsets") or ():
        hosts = [string_or_empty(address.get("ip")) for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        endpoints += hosts if not ports else [f"{host}:{port.get('port')}" for port in ports for host in hosts]
    return first_and_more(endpoints, "<none>")


ENDPOINTS = (NAME, Column("Endpoints", _endpoints), AGE)


def _slice_ports(obj: Json, now: float) -> str:
    return first_and_more([str(port.get("port") or "*") for port in obj.get("ports") or ()], "<unset>")


def _slice_endpoints(obj: Json, now: float) -> str:
    return first_and_more(
        [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()], "<unset>"
    )


SLICE = (
    NAME,
    Column("AddressType", lambda obj, now: string_or_empty(obj.get("addressType"))),
    Column("Ports", _slice_ports),
    Column("Endpoints", _slice_endpoints),
    AGE,
)


def external_ip(service: Json, now: float) -> str:
    """The cell EXTERNAL-IP of a Service, as kubectl shows it."""
    spec = _spec(service)
    if spec.get("type") == "ExternalName":
        return string_or_empty(spec.get("externalName"))
    external_ips = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = (_status(service).get("loadBalancer") or {}).get("ingress") or ()
        load_balancer_addresses = sorted(
            {string_or_empty(point.get("ip")) or string_or_empty(point.get("hostname")) for point in ingress}
        )
        return ",".join([*load_balancer_addresses, *external_ips]) or "<pending>"
    return ",".join(external_ips) or "<none>"


def service_ports(service: Json, now: float) -> str:
    """The cell PORT(S) of a Service: `80:30080/TCP,443/TCP`."""
    shown = [
        f"{port['port']}:{port['nodePort']}/{port['protocol']}"
        if port.get("nodePort")
        else f"{port['port']}/{port['protocol']}"
        for port in _spec(service).get("ports") or ()
    ]
    return ",".join(shown) or "<none>"


def _first_seen(event: Json, now: float) -> str:
    stamp = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    return age_of_timestamp(stamp, now)


def _last_seen(event: Json, now: float) -> str:
    series = event.get("series") or {}
    stamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return age_of_timestamp(stamp, now) if stamp else _first_seen(event, now)


def _object_reference(event: Json, now: float) -> str:
    involved = _involved_object(event)
    kind, name = string_or_empty(involved.get("kind")).lower(), string_or_empty(involved.get("name"))
    return f"{kind}/{name}" if name else kind


def _involved_object(event: Json) -> Json:
    return event.get("involvedObject") or event.get("regarding") or {}


def _source(event: Json, now: float) -> str:
    source: Any = event.get("source") or event.get("deprecatedSource") or {}
    reporter = event.get("reportingComponent") or event.get("reportingController")
    component = string_or_empty(source.get("component")) or string_or_empty(reporter)
    instance = string_or_empty(source.get("host")) or string_or_empty(event.get("reportingInstance"))
    return f"{component}, {instance}" if instance else component


def _count(event: Json, now: float) -> int:
    series = event.get("series")
    if isinstance(series, dict):
        return int(series.get("count") or 0)
    return int(event.get("count") or event.get("deprecatedCount") or 1)


EVENT = (
    Column("Last Seen", _last_seen),
    Column("Type", lambda event, now: string_or_empty(event.get("type"))),
    Column("Reason", lambda event, now: string_or_empty(event.get("reason"))),
    Column("Object", _object_reference),
    Column("Subobject", lambda event, now: string_or_empty(_involved_object(event).get("fieldPath")), priority=1),
    Column("Source", _source, priority=1),
    Column("Message", lambda event, now: string_or_empty(event.get("message") or event.get("note")).strip()),
    Column("First Seen", _first_seen, priority=1),
    Column("Count", _count, priority=1),
    Column("Name", lambda event, now: event["metadata"]["name"], priority=1, format="name"),
)


def _versions(crd: Json, now: float) -> str:
    served = [version for version in _spec(crd).get("versions") or () if version.get("served")]
    return ",".join(version["name"] + ("(storage)" if version.get("storage") else "") for version in served)


def _established(crd: Json, now: float) -> bool:
    conditions = _status(crd).get("conditions") or ()
    return any(condition.get("type") == "Established" and condition.get("status") == "True" for condition in conditions)


CREATED = Column("Created At", lambda obj, now: obj["metadata"].get("creationTimestamp"), type="date")
DEFINITION = (
    NAME,
    Column("Scope", lambda crd, now: string_or_empty(_spec(crd).get("scope"))),
    Column("Versions", _versions),
    CREATED,
    Column("Group", lambda crd, now: string_or_empty(_spec(crd).get("group")), priority=1),
    Column("Kind", lambda crd, now: string_or_empty((_spec(crd).get("names") or {}).get("kind")), priority=1),
    Column(
        "ShortNames", lambda crd, now: ",".join((_spec(crd).get("names") or {}).get("shortNames") or ()), priority=1
    ),
    Column("Established", _established, type="boolean", priority=1),
)
