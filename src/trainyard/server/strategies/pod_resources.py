"""What the real server refuses of a container's `resources`, at its paths and with its first words."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.metadata import key_texts
from trainyard.server.quantities import number

OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_OF_QUOTAS = (
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in OF_CONTAINERS),
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers"),
)
_COUNTED = _OF_QUOTAS[6:]
_EXTENDED = "requests."
"""What a quota puts before the name of an extended resource, which has to stay a name then."""


def resource_problems(resources: Json, path: str) -> Iterator[Problem]:
    """Names, sizes, and what is asked for beyond the limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for word, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{path}.{word}[{name[:80]}]")
    for name, amount in requests.items():
        if name in limits:
            yield from _beyond(name, amount, limits[name], f"{path}.requests")
        elif not _may_share(name):
            yield Problem(f"{path}.limits", "Required value: Limit must be set for non overcommitable resources")
    if any(name.startswith(_HUGE) for name in (*limits, *requests)) and not {"cpu", "memory"} & {*limits, *requests}:
        yield Problem(path, "Forbidden: HugePages require cpu or memory")


def _amount(name: str, amount: str, path: str) -> Iterator[Problem]:
    for text in () if name in OF_CONTAINERS else _name_texts(name):
        yield Problem(path, f"Invalid value: {shown(name)}: {text}")
    value = number(amount)
    if value.numerator < 0:
        yield Problem(path, f"Invalid value: {shown(amount)}: must be greater than or equal to 0")
    if _is_whole(name) and value.denominator != 1:
        yield Problem(path, f"Invalid value: {shown(amount)}: must be a whole number")


def _name_texts(name: str) -> Iterator[str]:
    """What is wrong with the name of a resource that is none of a container's own."""
    texts = key_texts(name)
    yield from texts
    if "/" not in name and not name.startswith(_HUGE):
        if not texts and name not in _OF_QUOTAS:
            yield "must be a standard resource type or fully qualified"
        yield "must be a standard resource for containers"
    elif "/" in name and "kubernetes.io/" not in name and (name.startswith(_EXTENDED) or key_texts(_EXTENDED + name)):
        yield "doesn't follow extended resource name standard"


def _is_whole(name: str) -> bool:
    """Devices are not given out in parts."""
    return name in _COUNTED or ("/" in name and "kubernetes.io/" not in name)


def _may_share(name: str) -> bool:
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith(_HUGE)


def _beyond(name: str, amount: str, limit: str, path: str) -> Iterator[Problem]:
    most = f"{name[:80]} limit of {limit}"
    if number(amount) != number(limit) and not _may_share(name):
        yield Problem(path, f"Invalid value: {shown(amount)}: must be equal to {most}")
    elif number(amount) > number(limit):
        yield Problem(path, f"Invalid value: {shown(amount)}: must be less than or equal to {most}")
