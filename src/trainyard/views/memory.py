"""The memory of ended container runs: their peak, which the node has measured, and the limit of the container."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.objects import Json, as_dict
from trainyard.objects.container_statuses import ContainerStatus
from trainyard.objects.usage import PEAK_DEVICE_MEMORY, peaks_of


class MemoryPeak(NamedTuple):
    """The largest memory of a container's last ended run in bytes, 0 when it is unknown, and the container's
    `resources.limits.memory`, "" without one."""

    size: int = 0
    limit: str = ""

    @property
    def text(self) -> str:
        """`peak 3.4 GiB, limit 4Gi`; "" when the peak is unknown."""
        limit = f"limit {self.limit}" if self.limit else "no limit"
        return f"peak {format_bytes(self.size)}, {limit}" if self.size else ""

    @property
    def cell(self) -> str:
        """`3.4 GiB of 4Gi` for a table; "" when the peak is unknown."""
        limit = f" of {self.limit}" if self.limit else ""
        return f"{format_bytes(self.size)}{limit}" if self.size else ""


def memory_peak(pod: Json, container: ContainerStatus) -> MemoryPeak:
    """The peak of the last ended run of a container of the pod."""
    annotations = as_dict(as_dict(pod.get("metadata")).get("annotations"))
    size = peaks_of(annotations).get(f"{container.name}/{container.last_terminated_run}", 0)
    return MemoryPeak(size, memory_limit(pod, container.name))


def device_peak(pod: Json, container: ContainerStatus) -> int:
    """The largest memory on GPUs of the last ended run of a container in bytes, 0 if it used none, or if it is
    unknown."""
    annotations = as_dict(as_dict(pod.get("metadata")).get("annotations"))
    return peaks_of(annotations, PEAK_DEVICE_MEMORY).get(f"{container.name}/{container.last_terminated_run}", 0)


def memory_limit(pod: Json, container: str) -> str:
    """`resources.limits.memory` of a container of the pod, init or not; "" without one."""
    spec = as_dict(pod.get("spec"))
    for entry in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if isinstance(entry, dict) and entry.get("name") == container:
            return str(as_dict(as_dict(entry.get("resources")).get("limits")).get("memory") or "")
    return ""


def format_bytes(size: float) -> str:
    """A size as people read it: 12 B, 200 KiB, 200 MiB, 3.4 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
