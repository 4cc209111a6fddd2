"""A stand-in for AMD's drivers: the files of sysfs that amdkfd and amdgpu have for each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

GIB = 1 << 30
KFD = "class/kfd/kfd"


def write_nodes(sysfs: Path, nodes: Sequence[Mapping[str, int]]) -> None:
    """The nodes of the topology with these properties; those of a node's only link are `type` and `node_to`."""
    for number, fields in enumerate(nodes):
        link = {key: value for key, value in fields.items() if key in ("type", "node_to")}
        parts = {
            "": {key: value for key, value in fields.items() if key not in link},
            "mem_banks/0": {"heap_type": 1, "size_in_bytes": 192 * GIB},
            "io_links/0": link,
        }
        for name, values in parts.items():
            folder = sysfs / KFD / "topology/nodes" / str(number) / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "properties").write_text("".join(f"{key} {value}\n" for key, value in values.items()))


class FakeAmd:
    """A machine with `count` GPUs, in the folder `sysfs`."""

    def __init__(self, sysfs: Path, count: int) -> None:
        self.sysfs = sysfs
        gpu = {"simd_count": 304, "gfx_target_version": 90402}
        gpus = [{**gpu, "unique_id": index + 1, "location_id": (index + 1) << 8} for index in range(count)]
        write_nodes(sysfs, [{"simd_count": 0}, *gpus])
        for index in range(count):
            (sysfs / KFD / f"topology/nodes/{index + 1}/gpu_id").write_text(f"{1000 + index}\n")
            self.set(index, 0, 0)

    def set(self, index: int, used: int, busy: int) -> None:
        """The memory in use in bytes, and the percentage of busy time."""
        folder = self.sysfs / f"bus/pci/devices/0000:{index + 1:02x}:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        values = {"mem_info_vram_total": 192 * GIB, "mem_info_vram_used": used, "gpu_busy_percent": busy}
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")

    def set_process(self, index: int, pid: int, memory: int) -> None:
        """A process computes on the GPU."""
        folder = self.sysfs / KFD / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"vram_{1000 + index}").write_text(f"{memory}\n")
