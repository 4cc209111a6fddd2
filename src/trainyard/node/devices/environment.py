"""The variables by which the programs of a container see its devices, and no others. Pure.

Rules:
- `NVIDIA_VISIBLE_DEVICES` and `CUDA_VISIBLE_DEVICES` have UUIDs, which mean the same whatever else a program sees;
  `CUDA_DEVICE_ORDER` is the order of nvidia-smi. AMD's runtime reads `ROCR_VISIBLE_DEVICES`, HIP then counts from 0.
- A container that requests none gets empty values, which hide all.
- What the pod's own spec has in these variables selects among the devices of the container, as it would in a container
  of a cluster, which has no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainyard.node.devices.device import Device
from trainyard.node.devices.visibility import select
from trainyard.objects.extended_resources import AMD_GPU


def device_environment(own: Sequence[Device], node: Sequence[Device], stated: Mapping[str, str]) -> dict[str, str]:
    """`own`: the devices of the container, `node`: those of the node; `stated`: the variables of the container's
    spec. The result replaces them."""
    variables: dict[str, str] = {}
    if any(device.resource != AMD_GPU for device in node):
        nvidia = [device for device in own if device.resource != AMD_GPU]
        variables["NVIDIA_VISIBLE_DEVICES"] = _uuids(nvidia)
        variables["CUDA_VISIBLE_DEVICES"] = _uuids(_selected(nvidia, stated.get("CUDA_VISIBLE_DEVICES")))
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if any(device.resource == AMD_GPU for device in node):
        amd = [device for device in own if device.resource == AMD_GPU]
        amd = _selected(amd, stated.get("ROCR_VISIBLE_DEVICES"))
        variables["ROCR_VISIBLE_DEVICES"] = _uuids(amd)
        selected = _selected(amd, stated.get("HIP_VISIBLE_DEVICES"))
        variables["HIP_VISIBLE_DEVICES"] = ",".join(str(amd.index(device)) for device in selected)
    return variables


def _selected(devices: Sequence[Device], value: str | None) -> list[Device]:
    return list(devices) if value is None else select(value, devices, positions=True)[0]


def _uuids(devices: Sequence[Device]) -> str:
    return ",".join(device.uuid for device in devices)
