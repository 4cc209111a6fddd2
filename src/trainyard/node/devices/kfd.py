"""AMD's GPUs, from what the kernel drivers amdkfd and amdgpu have in sysfs.

The uuid of a GPU is the one that ROCr prints, `GPU-` with its unique_id. A GPU without one, and a partition that has
that of its whole GPU, is named by its index, which `ROCR_VISIBLE_DEVICES` takes as well.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from trainyard.node.devices.device import Device
from trainyard.node.devices.drivers import AMD_TOPOLOGY, SYSFS
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceProcess, DeviceUsage

_PCI_DEVICES = "bus/pci/devices"  # below SYSFS
_PROCESSES = "class/kfd/kfd/proc"
_VIDEO_MEMORY = ("1", "2")  # heap_type of a memory bank: frame buffer, public and private
_XGMI = "11"  # type of an io_link


def amd_gpus(sysfs: Path = Path(SYSFS)) -> tuple[Device, ...]:
    """The GPUs in the order of their nodes, which is that of ROCr's indices. () without the driver."""
    gpus: dict[str, Device] = {}  # number of the node -> device
    linked: dict[str, list[str]] = {}  # number of the node -> those of the nodes that XGMI connects it with
    nodes = [(folder, _properties(folder)) for folder in _gpu_nodes(sysfs)]
    ids = Counter(facts.get("unique_id", "0") for _, facts in nodes)
    for index, (folder, facts) in enumerate(nodes):
        number, location = folder.name, int(facts.get("location_id", "0"))
        unique_id = int(facts.get("unique_id", "0")) if ids[facts.get("unique_id", "0")] == 1 else 0
        address = f"{int(facts.get('domain', '0')):04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
        banks = map(_properties, _folders(folder / "mem_banks"))
        gpus[number] = Device(
            AMD_GPU,
            f"GPU-{unique_id:016x}" if unique_id else str(index),
            index,
            _text(sysfs / _PCI_DEVICES / address / "product_name")
            or _architecture(int(facts.get("gfx_target_version", "0"))),
            sum(int(bank.get("size_in_bytes", "0")) for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY),
            address,
            _numa_node(sysfs, address),
        )
        links = map(_properties, _folders(folder / "io_links"))
        linked[str(number)] = [link.get("node_to", "") for link in links if link.get("type") == _XGMI]
    return tuple(
        replace(gpu, links=tuple(gpus[other].uuid for other in linked[number] if other in gpus))
        for number, gpu in gpus.items()
    )


def _architecture(version: int) -> str:
    """The name of a gfx_target_version: 90402 is gfx942."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def amd_usage(sysfs: Path = Path(SYSFS)) -> list[DeviceUsage]:
    """The use of each of `amd_gpus` now. What the kernel does not tell is missing: amdgpu has the memory and the share
    of busy time of a GPU, amdkfd the memory of each process that computes (since Linux 5.9)."""
    usages = []
    for device, folder in zip(amd_gpus(sysfs), _gpu_nodes(sysfs), strict=True):
        pci, gpu_id = sysfs / _PCI_DEVICES / device.pci_address, _text(folder / "gpu_id")
        processes = [
            DeviceProcess(int(process.name), size)
            for process in _folders(sysfs / _PROCESSES)
            if process.name.isdecimal() and (size := _number(process / f"vram_{gpu_id}", 0))
        ]
        busy = _number(pci / "gpu_busy_percent", -1)
        usages.append(
            DeviceUsage(
                index=device.index,
                uuid=device.uuid,
                name=device.name,
                memory=_number(pci / "mem_info_vram_total", device.memory),
                used=_number(pci / "mem_info_vram_used", sum(process.memory for process in processes)),
                utilization=busy if busy >= 0 else None,
                processes=tuple(sorted(processes, key=lambda process: process.pid)),
            )
        )
    return usages


def _gpu_nodes(sysfs: Path) -> list[Path]:
    """The folders of the topology's nodes that are GPUs, not processors, in the order of their numbers."""
    folders = [folder for folder in _folders(sysfs / AMD_TOPOLOGY) if folder.name.isdecimal()]
    nodes = sorted(folders, key=lambda folder: int(folder.name))
    return [folder for folder in nodes if int(_properties(folder).get("simd_count", "0"))]


def _numa_node(sysfs: Path, address: str) -> int:
    return _number(sysfs / _PCI_DEVICES / address / "numa_node", -1)


def _number(file: Path, default: int) -> int:
    try:
        return int(_text(file))
    except ValueError:
        return default


def _text(file: Path) -> str:
    """ "" for a file that cannot be read, or that the driver cannot answer now."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _folders(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _properties(folder: Path) -> dict[str, str]:
    """The lines "name number" of the file `properties`. {} when it cannot be read, as of a GPU that this container may
    not use."""
    properties = {}
    with contextlib.suppress(OSError):
        for line in (folder / "properties").read_text().splitlines():
            name, _, value = line.partition(" ")
            if value.strip().isdecimal():
                properties[name] = value.strip()
    return properties
