"""Validation of a container's `resources`, with kube-apiserver's paths and the first words of its messages."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api_types.names import key_texts
from trainyard.objects import Json, Problem
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text

STANDARD_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_HUGEPAGES = "hugepages-"
_QUOTA_PREFIX = "requests."
"""The prefix of an extended resource in a quota; the name with this prefix must be a valid qualified name."""


def resource_problems(resources: Json, path: str) -> Iterator[Problem]:
    """Problems of names, quantities, and of requests above their limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for word, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _quantity_problems(name, amount, f"{path}.{word}[{name[:80]}]")
    for name, amount in requests.items():
        if name in limits:
            yield from _request_over_limit(name, amount, limits[name], f"{path}.requests")
        elif not _may_overcommit(name):
            yield Problem(f"{path}.limits", "Required value: Limit must be set for non overcommitable resources")
    if any(name.startswith(_HUGEPAGES) for name in (*limits, *requests)) and not {"cpu", "memory"} & {
        *limits,
        *requests,
    }:
        yield Problem(path, "Forbidden: HugePages require cpu or memory")


def _quantity_problems(name: str, quantity: str, path: str) -> Iterator[Problem]:
    for text in () if name in STANDARD_CONTAINER_RESOURCES else _name_texts(name):
        yield Problem(path, f"Invalid value: {json_text(name)}: {text}")
    value = number(quantity)
    if value.numerator < 0:
        yield Problem(path, f"Invalid value: {json_text(quantity)}: must be greater than or equal to 0")
    if "/" in name and "kubernetes.io/" not in name and value.denominator != 1:
        yield Problem(path, f"Invalid value: {json_text(quantity)}: must be a whole number")


def _name_texts(name: str) -> Iterator[str]:
    """Problem texts of a resource name that is not one of `STANDARD_CONTAINER_RESOURCES`."""
    yield from key_texts(name)
    if "/" not in name and not name.startswith(_HUGEPAGES):
        yield "must be a standard resource for containers"
    elif (
        "/" in name
        and "kubernetes.io/" not in name
        and (name.startswith(_QUOTA_PREFIX) or key_texts(_QUOTA_PREFIX + name))
    ):
        yield "doesn't follow extended resource name standard"


def _may_overcommit(name: str) -> bool:
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith(_HUGEPAGES)


def _request_over_limit(name: str, amount: str, limit: str, path: str) -> Iterator[Problem]:
    limit_text = f"{name[:80]} limit of {limit}"
    if number(amount) != number(limit) and not _may_overcommit(name):
        yield Problem(path, f"Invalid value: {json_text(amount)}: must be equal to {limit_text}")
    elif number(amount) > number(limit):
        yield Problem(path, f"Invalid value: {json_text(amount)}: must be less than or equal to {limit_text}")
