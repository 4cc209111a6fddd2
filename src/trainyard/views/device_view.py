"""GPUs as people read them: memory, utilisation, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.objects.usage import DeviceUsage
from trainyard.views.memory import format_bytes


def device_text(device: DeviceUsage) -> str:
    """`NVIDIA H100: 12.3 GiB of 80.0 GiB, 97 % busy; mnist-worker-0 12.1 GiB`, or that it is lost, and why. A pod that
    has it and does not use it is named, too."""
    if device.lost:
        return f"{device.name}: lost: {device.lost}; no pod gets it".lstrip(": ")
    parts = [f"{format_bytes(device.used)} of {format_bytes(device.memory)}"] if device.memory else []
    parts += [f"{device.utilization} % busy"] if device.utilization is not None else []
    text = f"{device.name}: {', '.join(parts)}" if parts else device.name
    by_pod: dict[str, int] = {}
    for process in device.processes:
        if process.pod:
            by_pod[process.pod] = by_pod.get(process.pod, 0) + process.memory
    pods = [f"{pod} {format_bytes(size)}" for pod, size in by_pod.items()]
    pods += [f"given to {device.pod}"] if device.pod and device.pod not in by_pod else []
    return "; ".join([text, *pods])


def device_lines(devices: Sequence[DeviceUsage]) -> list[str]:
    """A line for each device, and for each process on it that is of no pod."""
    return [*(f"{device.index} {device_text(device)}" for device in devices), *other_programs(devices)]


def other_programs(devices: Iterable[DeviceUsage]) -> list[str]:
    """A line for each process that uses a device and is of no pod."""
    return [
        f"device {device.index}: {format_bytes(process.memory)} used by another program, pid {process.pid}"
        + (f" ({process.command})" if process.command else "")
        for device in devices
        for process in device.processes
        if not process.pod
    ]
