"""Why a pod that asks for devices, such as `nvidia.com/gpu`, fits no node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.core.diagnosis import Cause
from trainyard.objects import Json
from trainyard.objects.extended_resources import is_device_resource, pod_requests
from trainyard.objects.quantities import exact

_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]*\w)")


def device_lack(pod: Json, message: str, nodes: Sequence[Json] | None) -> Cause | None:
    """Which devices the pod asks for and what the nodes have, for a scheduler's message that names a device resource.

    nodes: None where they are not known. None for another
    message, and for a pod that asks for no device."""
    requests = pod_requests(pod)
    lacking = [name for name in _INSUFFICIENT.findall(message) if is_device_resource(name) and name in requests]
    if not lacking:
        return None
    resource = lacking[0]
    number, counts = requests[resource], [_allocatable(node, resource) for node in nodes or ()]
    if counts and number > max(counts):
        most = max(counts)
        has = f"no node has more than {most}" if most else "no node has one that can be given out"
        fix = (
            f"ask for at most {most} in resources.limits, or add a node with more" if most else "see `trainyard doctor`"
        )
        return Cause(f"it asks for {number} {resource}, and {has}", fix)
    explanation = f"it waits for {number} {resource}: other pods have too many of "
    explanation += f"the {max(counts)} of its node" if counts else "them"
    fix = "wait until one of them ends, or ask for less in resources.limits; `trainyard doctor` shows who has which"
    return Cause(explanation, fix)


def _allocatable(node: Json, resource: str) -> int:
    status = node.get("status")
    allocatable = status.get("allocatable") if isinstance(status, dict) else None
    count = exact(str(allocatable.get(resource) or "")) if isinstance(allocatable, dict) else None
    return int(count or 0)
