"""The taints of nodes that keep a pod from them."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.objects import Json, as_dict, name_of

MAX_TAINTED_NODES = 4  # that the evidence names


def untolerated_taints(pod: Json, nodes: Iterable[Json]) -> list[str]:
    """A line for each node with taints that the pod does not tolerate, at most MAX_TAINTED_NODES."""
    tolerations = as_dict(pod.get("spec")).get("tolerations") or []
    lines = []
    for node in nodes:
        taints = [
            _text(taint)
            for taint in as_dict(node.get("spec")).get("taints") or []
            if taint.get("effect") != "PreferNoSchedule"
            and not any(_tolerates(toleration, taint) for toleration in tolerations)
        ]
        if taints:
            lines.append(f"node {name_of(node)}: {'taints' if len(taints) > 1 else 'taint'} {', '.join(taints)}")
    return lines[:MAX_TAINTED_NODES]


def _text(taint: Json) -> str:
    """As `kubectl taint` takes it: KEY=VALUE:EFFECT."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    is_any_value = toleration.get("operator") == "Exists"
    return is_any_value or (toleration.get("value") or "") == (taint.get("value") or "")
