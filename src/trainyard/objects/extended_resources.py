"""The extended resources that a pod requests, such as `nvidia.com/gpu`, counted as kube-scheduler counts them. Pure.

Rules:
- A container requests what stands in its `requests`, and its limit of a resource without a request.
- A pod requests the sum over its containers and sidecars; an init container runs alone beside the sidecars before it,
  so that only the largest of these sums counts (Kubernetes KEP 753).
- The name of Kubernetes 1.8 and older, `alpha.kubernetes.io/nvidia-gpu`, is `nvidia.com/gpu`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from trainyard.objects.meta import Json
from trainyard.objects.quantities import exact

NVIDIA_GPU = "nvidia.com/gpu"
NVIDIA_MIG = "nvidia.com/mig-"  # prefix: nvidia.com/mig-1g.10gb, as NVIDIA's device plugin names a MIG profile
AMD_GPU = "amd.com/gpu"
OLD_NAMES = {"alpha.kubernetes.io/nvidia-gpu": NVIDIA_GPU}
_MAX_COUNT = 10**9

Item = TypeVar("Item")


def is_device_resource(name: str) -> bool:
    """Whether Trainyard's nodes give out devices of this resource, by its name of today."""
    return name in (NVIDIA_GPU, AMD_GPU) or name.startswith(NVIDIA_MIG)


def gpu_vendor(name: str) -> str:
    """The vendor, `nvidia.com` or `amd.com`, of a resource as which a device plugin may count GPUs, "" for any other.
    The plugins also have names that Trainyard does not give out: nvidia.com/gpu.shared, amd.com/cpx_nps4."""
    vendor = name.partition("/")[0]
    return vendor if name.startswith((NVIDIA_GPU, NVIDIA_MIG, "amd.com/")) else ""


def container_requests(container: Json) -> dict[str, int]:
    """Resource -> number that one container requests; without resources of which it requests none."""
    resources = container.get("resources")
    amounts: dict[str, object] = {}
    for part in ("limits", "requests"):
        quantities = resources.get(part) if isinstance(resources, dict) else None
        amounts |= quantities if isinstance(quantities, dict) else {}
    counts: dict[str, int] = {}
    for name, amount in amounts.items():
        if name in OLD_NAMES or ("/" in name and "kubernetes.io/" not in name):
            number, name = exact(str(amount)), OLD_NAMES.get(name, name)
            if number is not None and number > 0:
                counts[name] = max(counts.get(name, 0), min(math.floor(number), _MAX_COUNT))
    return {name: count for name, count in counts.items() if count}


def pod_requests(pod: Json) -> dict[str, int]:
    """Resource -> number that has to be free for the pod. A pod template is taken, too."""
    inits, containers = _containers(pod)
    largest: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for init in inits:
        needed = _sum(sidecars, container_requests(init))
        largest = {name: max(needed.get(name, 0), largest.get(name, 0)) for name in needed | largest}
        sidecars = needed if _is_sidecar(init) else sidecars
    total = sidecars
    for container in containers:
        total = _sum(total, container_requests(container))
    return {name: max(total.get(name, 0), largest.get(name, 0)) for name in total | largest}


def container_shares(pod: Json, assigned: Mapping[str, Sequence[Item]]) -> dict[str, dict[str, list[Item]]]:
    """Container name -> resource -> what of the pod's `assigned` items the container has.

    Containers and sidecars share nothing; an init container has items that no sidecar before it has."""
    inits, containers = _containers(pod)
    shares: dict[str, dict[str, list[Item]]] = {}
    used: dict[str, int] = {}
    for container in (*inits, *containers):
        requests = container_requests(container)
        shares[str(container.get("name"))] = {
            name: list(assigned.get(name, ())[used.get(name, 0) : used.get(name, 0) + count])
            for name, count in requests.items()
        }
        if container in containers or _is_sidecar(container):
            used = _sum(used, requests)
    return shares


def _containers(pod: Json) -> tuple[list[Json], list[Json]]:
    spec = pod.get("spec")
    parts = (spec.get(name) if isinstance(spec, dict) else None for name in ("initContainers", "containers"))
    inits, containers = (
        [entry for entry in part if isinstance(entry, dict)] if isinstance(part, list) else [] for part in parts
    )
    return inits, containers


def _is_sidecar(init: Json) -> bool:
    return init.get("restartPolicy") == "Always"


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}
