"""`python -m trainyard.node.devices.nvml_probe [SECONDS]`: print what NVML knows of this machine's GPUs, as one line of
JSON. After that many seconds the process ends, also if the node that started it is gone.

A program of its own: NVML blocks for as long as the driver does, and a library that does not match the driver may kill
its process. discovery.py runs it with a time limit.

Rules:
- A GPU of which the uuid cannot be read is left out, with its reason in `problems`. Any other fact that the driver does
  not tell is missing in its device.
- An older driver lacks functions, for which nvidia-ml-py raises NVMLError_FunctionNotFound or an exception that is no
  NVMLError; so `Exception` is caught.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.node.devices.drivers import NVML

_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_PCI_DEVICES = Path("/sys/bus/pci/devices")


def read_inventory() -> dict[str, Any]:
    """The fields of an Inventory as JSON values."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except Exception as error:
        return {"problems": [_init_problem(error)]}
    cuda = _optional(pynvml.nvmlSystemGetCudaDriverVersion, 0)
    inventory: dict[str, Any] = {
        "driver": _optional(pynvml.nvmlSystemGetDriverVersion, ""),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        "devices": [],
        "problems": [],
    }
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append((index, handle, pynvml.nvmlDeviceGetUUID(handle)))
        except Exception as error:
            inventory["problems"].append(f"GPU {index} cannot be used: {error}")
    for index, handle, uuid in gpus:
        inventory["devices"] += _devices(pynvml, index, handle, uuid, gpus)
    return inventory


def _devices(
    pynvml: Any, index: int, handle: Any, uuid: str, gpus: list[tuple[int, Any, str]]
) -> list[dict[str, object]]:
    """The GPU itself; its MIG devices instead in MIG mode."""
    address = _optional(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId, "")
    capability = _optional(lambda: ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle))), "")
    place = {"index": index, "pci_address": address, "numa_node": _numa_node(address), "capability": capability}
    if _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0):
        return [{**device, **place, "gpu": uuid} for device in _mig_devices(pynvml, handle)]
    links = [other_uuid for _, other, other_uuid in gpus if other_uuid != uuid and _is_linked(pynvml, handle, other)]
    return [{"resource": "nvidia.com/gpu", "uuid": uuid, "links": links, **_name_and_memory(pynvml, handle), **place}]


def _mig_devices(pynvml: Any, handle: Any) -> list[dict[str, object]]:
    devices = []
    for index in range(_optional(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = pynvml.nvmlDeviceGetUUID(mig)
        except Exception:  # noqa: S112  (most places of MIG devices are empty)
            continue
        facts = _name_and_memory(pynvml, mig)
        # "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me" is nvidia.com/mig-1g.5gb.me (NVIDIA's device plugin).
        profile = str(facts["name"]).rpartition(" MIG ")[2].replace("+", ".")
        devices.append({"resource": f"nvidia.com/mig-{profile}", "uuid": uuid, **facts})
    return devices


def _name_and_memory(pynvml: Any, handle: Any) -> dict[str, object]:
    return {
        "name": _optional(lambda: pynvml.nvmlDeviceGetName(handle), ""),
        "memory": _optional(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), 0),
    }


def _is_linked(pynvml: Any, handle: Any, other: Any) -> bool:
    """Whether NVLink connects two GPUs, also through a switch."""
    status = _optional(lambda: pynvml.nvmlDeviceGetP2PStatus(handle, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK), None)
    return status is not None and status == pynvml.NVML_P2P_STATUS_OK


def _numa_node(address: str) -> int:
    """The NUMA node of a PCI address ("00000000:3B:00.0", whose domain sysfs has with four digits); -1 if unknown."""
    domain, _, rest = address.lower().partition(":")
    try:
        return int((_PCI_DEVICES / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def _init_problem(error: Exception) -> str:
    """Why NVML cannot be used. nvidia-ml-py reports a library that cannot be loaded as one that is not there."""
    if getattr(error, "value", None) == _MISMATCH:
        fix = "restart this machine, or load the driver's kernel module again"
        return f"NVML does not match the NVIDIA driver, which was updated while it was loaded; {fix}"
    try:
        ctypes.CDLL(NVML)
    except OSError as load_error:
        return f"NVML cannot be loaded: {load_error}"
    return f"NVML does not work: {error}"


def _optional(call: Callable[[], Any], default: Any) -> Any:
    try:
        return call()
    except Exception:
        return default


if __name__ == "__main__":
    signal.alarm(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    sys.stdout.write(json.dumps(read_inventory()) + "\n")
