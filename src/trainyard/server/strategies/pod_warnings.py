"""What the real server warns of in a pod spec that it takes: what is there twice, or empty, or in parts of a byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema.checks import shown
from trainyard.server.metadata import name_problem
from trainyard.server.quantities import number
from trainyard.server.strategies.pod_placement import placement_warnings

_GROUPS = ("initContainers", "containers")


def name_warnings(new: Json, use: str) -> Iterator[str]:
    """A name that cannot be that of a host, for which it is used."""
    name = new["metadata"].get("name") or ""
    if name and (bad := name_problem(name, "label")):
        why = f"this is used in {use}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{bad.text.removeprefix(f'Invalid value: {shown(name)}: ')}]"


def pod_warnings(spec: Json, path: str) -> Iterator[str]:
    """The sentences, in the real server's order. `path` is where the spec is."""
    for place, field in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        items = spec.get(place)
        if items:
            yield from _repeated(items, f"{path}.{place}", field)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        if not all(map(_says_something, sources)):
            yield f'volume "{volume.get("name") or ""}" (Projected) has no sources provided'
    yield from placement_warnings(spec, path)
    containers = list(_containers(spec, path))
    for where, container in containers:
        if resources := container.get("resources"):
            yield from _fractions(resources, f"{where}.resources")
        if variables := container.get("env"):
            yield from _hidden(variables, f"{where}.env")
    yield from _ports(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {why}"


def _says_something(source: Json) -> bool:
    return any(part is not None for part in source.values())


def _containers(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{path}.{group}[{index}]", container


def _repeated(items: list[Json], path: str, field: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, item in enumerate(items):
        value = item.get(field) or ""
        if value in seen:
            yield f"{path}[{index}].{field}: duplicate {field} {shown(value)}"
        seen.add(value)


def _hidden(variables: list[Json], path: str) -> Iterator[str]:
    """Variables that have the name of an earlier one."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in seen:
            yield f"{path}[{index}]: hides previous definition of {shown(name)}, which may be dropped when using apply"
        seen.add(name)


def _fractions(resources: Json, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for word in ("limits", "requests"):
            amount = (resources.get(word) or {}).get(name)
            if amount is not None and number(amount).denominator != 1:
                yield f'{path}.{word}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


def _ports(containers: list[tuple[str, Json]]) -> Iterator[str]:
    """Ports of the whole pod that are the same, then names of ports that others have, too."""
    listed = [
        (f"{where}.ports[{index}]", port)
        for where, container in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    if len(listed) < 2:
        return
    known: dict[tuple[Any, Any], list[tuple[str, Json]]] = defaultdict(list)
    for where, port in listed:
        same = known[port.get("containerPort"), port.get("protocol")]
        for there, other in same:
            if word := _clash(port, other):
                yield f"{where}: {word} port definition with {there}"
        same.append((where, port))
    names: dict[str, str] = {}
    for where, port in listed:
        if not (name := port.get("name")):
            continue
        if (first := names.setdefault(name, where)) != where:
            use = f"services and probes that select ports by name will use {first}"
            yield f"{where}: duplicate port name {shown(name)} with {first}, {use}"


def _clash(port: Json, other: Json) -> str:
    (at, ip), (there, others) = ((one.get("hostPort") or 0, one.get("hostIP") or "") for one in (port, other))
    if at == there and ip == others:
        return "duplicate"
    if not at or not there:
        return "overlapping"
    return "dangerously ambiguous" if at == there and bool(ip) != bool(others) else ""
