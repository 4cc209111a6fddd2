"""Whether a driver of GPUs is loaded. Only looks for files: commands that need no devices pay nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainyard.objects.extended_resources import AMD_GPU, is_device_resource

NVML = "libnvidia-ml.so.1"
SYSFS = "/sys"
AMD_TOPOLOGY = "class/kfd/kfd/topology/nodes"  # below SYSFS
_NVIDIA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")  # dxg: the driver of WSL


def has_nvidia_driver(environ: Mapping[str, str]) -> bool:
    """Whether NVIDIA's driver is loaded, or its library stands where $LD_LIBRARY_PATH leads."""
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(map(os.path.exists, (*_NVIDIA_FILES, *(f"{folder}/{NVML}" for folder in folders if folder))))


def has_amd_driver() -> bool:
    """Whether AMD's driver for compute is loaded."""
    return os.path.exists(f"{SYSFS}/{AMD_TOPOLOGY}")


def may_give_out(resource: str, environ: Mapping[str, str]) -> bool:
    """Whether a driver is loaded for the devices of the resource."""
    if not is_device_resource(resource):
        return False
    return has_amd_driver() if resource == AMD_GPU else has_nvidia_driver(environ)
