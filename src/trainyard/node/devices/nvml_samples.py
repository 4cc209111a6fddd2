"""`python -m trainyard.node.devices.nvml_samples SECONDS COUNT`: print the use of this machine's GPUs every SECONDS
seconds, as one line of JSON each: a list of DeviceUsage. It ends after COUNT lines (0: no limit), or when nobody reads
them any more.

A program of its own, as nvml_probe.py: NVML blocks for as long as the driver does. What the driver does not tell is
missing; a device of which the driver says that it is lost has the reason.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from trainyard.node.devices.sample_lines import print_samples

_LOST = {
    15: "the driver cannot reach it",
    28: "it requires a reset",
}  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED


def read_samples(pynvml: Any) -> list[dict[str, Any]]:
    """The fields of a DeviceUsage of each GPU and MIG device."""
    samples: list[dict[str, Any]] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        sample: dict[str, Any] = {"index": index}
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            sample["uuid"] = pynvml.nvmlDeviceGetUUID(handle)
        except Exception as error:
            # Its uuid cannot be read any more: the reader knows it by its index.
            samples.append({**sample, "lost": _LOST.get(getattr(error, "value", 0), "")})
            continue
        in_mig_mode = _optional(lambda handle=handle: pynvml.nvmlDeviceGetMigMode(handle)[0], 0)
        migs = _mig_handles(pynvml, handle) if in_mig_mode else []
        for mig in migs:
            uuid = _optional(lambda mig=mig: pynvml.nvmlDeviceGetUUID(mig), "")
            samples.append({"index": index, "uuid": uuid, **_usage(pynvml, mig)})
        if not migs:
            samples.append({**sample, **_usage(pynvml, handle)})
    return samples


def _usage(pynvml: Any, handle: Any) -> dict[str, Any]:
    usage: dict[str, Any] = {"name": _optional(lambda: pynvml.nvmlDeviceGetName(handle), "")}
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        usage |= {"memory": int(memory.total), "used": int(memory.used)}
    except Exception as error:
        usage["lost"] = _LOST.get(getattr(error, "value", 0), "")
    usage["utilization"] = _optional(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu), None)
    processes: dict[int, int] = {}
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for process in _optional(lambda call=call: getattr(pynvml, call)(handle), ()):
            # None: under WSL and in some containers the driver does not tell the memory of a process.
            size = int(process.usedGpuMemory or 0)
            processes[process.pid] = max(processes.get(process.pid, 0), size)
    usage["processes"] = [{"pid": pid, "memory": size} for pid, size in processes.items()]
    return usage


def _mig_handles(pynvml: Any, handle: Any) -> list[Any]:
    count = _optional(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)
    handles = [
        _optional(lambda number=number: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number), None)
        for number in range(count)
    ]
    return [mig for mig in handles if mig is not None]


def _optional(call: Any, default: Any) -> Any:
    try:
        return call()
    except Exception:  # also NVMLLibraryMismatchError, which is no NVMLError
        return default


if __name__ == "__main__":
    import pynvml

    pynvml.nvmlInit()
    print_samples(lambda: json.dumps(read_samples(pynvml)), float(sys.argv[1]), int(sys.argv[2]))
