"""kube-apiserver's warnings about a valid pod spec: duplicates, empty values, fractional bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text
from trainyard.server.builtin.pod_scheduling import placement_warnings
from trainyard.server.registry.metadata import name_problem

_GROUPS = ("initContainers", "containers")


def name_warnings(new: Json, use: str) -> Iterator[str]:
    """A warning about a name that is no DNS label. `use`: for what the name is used."""
    name = new["metadata"].get("name") or ""
    if name and (problem := name_problem(name, "label")):
        text = f"this is used in {use}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {text}: [{problem.text.removeprefix(f'Invalid value: {json_text(name)}: ')}]"


def pod_warnings(spec: Json, path: str) -> Iterator[str]:
    """The warnings, in kube-apiserver's order. `path`: the path of the spec."""
    for list_field, field in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        items = spec.get(list_field)
        if items:
            yield from _duplicates(items, f"{path}.{list_field}", field)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        if not all(map(_has_source, sources)):
            yield f'volume "{volume.get("name") or ""}" (Projected) has no sources provided'
    yield from placement_warnings(spec, path)
    containers = list(_containers(spec, path))
    for where, container in containers:
        if resources := container.get("resources"):
            yield from _fractional_bytes(resources, f"{where}.resources")
        if variables := container.get("env"):
            yield from _hidden_variables(variables, f"{where}.env")
    yield from _ports(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {text}"


def _has_source(source: Json) -> bool:
    return any(value is not None for value in source.values())


def _containers(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{path}.{group}[{index}]", container


def _duplicates(items: list[Json], path: str, field: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, item in enumerate(items):
        value = item.get(field) or ""
        if value in seen:
            yield f"{path}[{index}].{field}: duplicate {field} {json_text(value)}"
        seen.add(value)


def _hidden_variables(variables: list[Json], path: str) -> Iterator[str]:
    """Warnings about variables with the name of an earlier one."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in seen:
            hidden = f"hides previous definition of {json_text(name)}, which may be dropped when using apply"
            yield f"{path}[{index}]: {hidden}"
        seen.add(name)


def _fractional_bytes(resources: Json, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for kind in ("limits", "requests"):
            quantity = (resources.get(kind) or {}).get(name)
            if quantity is not None and number(quantity).denominator != 1:
                yield f'{path}.{kind}[{name}]: fractional byte value "{quantity}" is invalid, must be an integer'


def _ports(containers: list[tuple[str, Json]]) -> Iterator[str]:
    """Warnings about duplicate ports of the whole pod, then about duplicate port names."""
    listed = [
        (f"{where}.ports[{index}]", port)
        for where, container in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    if len(listed) < 2:
        return
    by_port_number: dict[tuple[Any, Any], list[tuple[str, Json]]] = defaultdict(list)
    for where, port in listed:
        first_ports = by_port_number[port.get("containerPort"), port.get("protocol")]
        for first_path, first_port in first_ports:
            if conflict := _port_conflict(port, first_port):
                yield f"{where}: {conflict} port definition with {first_path}"
        first_ports.append((where, port))
    names: dict[str, str] = {}
    for where, port in listed:
        if not (name := port.get("name")):
            continue
        if (first := names.setdefault(name, where)) != where:
            use = f"services and probes that select ports by name will use {first}"
            yield f"{where}: duplicate port name {json_text(name)} with {first}, {use}"


def _port_conflict(port: Json, other: Json) -> str:
    (host_port, host_ip), (other_host_port, other_host_ip) = (
        (item.get("hostPort") or 0, item.get("hostIP") or "") for item in (port, other)
    )
    if host_port == other_host_port and host_ip == other_host_ip:
        return "duplicate"
    if not host_port or not other_host_port:
        return "overlapping"
    return "dangerously ambiguous" if host_port == other_host_port and bool(host_ip) != bool(other_host_ip) else ""
