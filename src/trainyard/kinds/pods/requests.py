"""What a pod requests of each resource, counted as kube-scheduler counts it (Kubernetes KEPs 753 and 2837). Pure."""

from __future__ import annotations

from fractions import Fraction

from trainyard.objects import Json
from trainyard.objects.quantities import exact

POD_LEVEL = ("cpu", "memory", "hugepages-")  # of which a pod's own `resources` stand for its containers'
Amounts = dict[str, Fraction]


def pod_requests(spec: Json, binary: set[str]) -> Amounts:
    """Resource -> amount of a pod spec: the sum over its containers and sidecars, or more where an init container needs
    more. A resource that is not requested counts with its limit. `binary` gets the resources with a suffix such as Mi.
    """
    running: Amounts = {}
    largest: Amounts = {}
    for init in _containers(spec, "initContainers"):
        needed = _added(running, _requests(init, binary))
        largest = _larger(largest, needed)
        running = needed if init.get("restartPolicy") == "Always" else running
    for container in _containers(spec, "containers"):
        running = _added(running, _requests(container, binary))
    of_containers = _larger(largest, running)
    own = {name: amount for name, amount in _requests(spec, binary).items() if name.startswith(POD_LEVEL)}
    return _added({**of_containers, **own}, _amounts(spec.get("overhead"), binary))


def _containers(spec: Json, field: str) -> list[Json]:
    listed = spec.get(field)
    return [container for container in listed if isinstance(container, dict)] if isinstance(listed, list) else []


def _requests(owner: Json, binary: set[str]) -> Amounts:
    """Those of a container, or of a pod spec with `resources` of its own."""
    resources = owner.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    return {**_amounts(resources.get("limits"), binary), **_amounts(resources.get("requests"), binary)}


def _amounts(quantities: object, binary: set[str]) -> Amounts:
    texts = {str(name): str(text) for name, text in quantities.items()} if isinstance(quantities, dict) else {}
    values = {name: exact(text) for name, text in texts.items()}
    binary |= {name for name, value in values.items() if value is not None and texts[name].endswith("i")}
    return {name: value for name, value in values.items() if value is not None}


def _added(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, Fraction(0)) + right.get(name, Fraction(0)) for name in {**left, **right}}


def _larger(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in {**left, **right}}
