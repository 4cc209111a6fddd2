"""The labels of a Node that name its GPUs, as NVIDIA's GPU feature discovery and AMD's node labeller have them, so that
the node selectors of a cluster's manifests hold. Pure.

Rules:
- A label about what differs among the devices of a resource is missing.
- `memory` is in MiB, `vram` in GiB with a G, as those programs have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainyard.node.devices.device import Device
from trainyard.objects.extended_resources import AMD_GPU

_NVIDIA, _AMD = ("count", "product", "memory", "compute.major", "compute.minor"), ("product-name", "vram")
_MAX_VALUE = 63  # characters of a label


def device_labels(devices: Sequence[Device]) -> dict[str, str]:
    """The labels of a node that gives out these devices."""
    labels: dict[str, str] = {}
    for resource in dict.fromkeys(device.resource for device in devices):
        own = [device for device in devices if device.resource == resource]
        values = [_amd(device) if resource == AMD_GPU else _nvidia(device, len(own)) for device in own]
        common = set(values[0].items()).intersection(*(value.items() for value in values))
        labels |= {f"{resource}.{name}": value for name, value in sorted(common) if value}
    return labels


def stale_labels(stored: Iterable[str], resources: Iterable[str]) -> dict[str, None]:
    """Of the stored labels those that this module may have written for these resources, each with None."""
    names = {f"{resource}.{name}" for resource in resources for name in (*_NVIDIA, *_AMD)}
    return dict.fromkeys(names.intersection(stored))


def _nvidia(device: Device, count: int) -> dict[str, str]:
    major, _, minor = device.capability.partition(".")
    memory = str(device.memory >> 20) if device.memory else ""
    return dict(zip(_NVIDIA, (str(count), _value(device.name, "-"), memory, major, minor), strict=True))


def _amd(device: Device) -> dict[str, str]:
    vram = f"{round(device.memory / (1 << 30))}G" if device.memory else ""
    return dict(zip(_AMD, (_value(device.name, "_"), vram), strict=True))


def _value(name: str, space: str) -> str:
    """A name as the value of a label, which the API server refuses with other characters."""
    return re.sub(r"[^\w.-]", "", name.replace(" ", space), flags=re.ASCII)[:_MAX_VALUE].strip("_.-")
