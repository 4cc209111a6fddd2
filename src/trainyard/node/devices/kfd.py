"""AMD's GPUs, from the topology that the kernel driver amdkfd has in sysfs.

The uuid of a GPU is the one that ROCr prints, `GPU-` with its unique_id; a GPU without one is named by its index.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from trainyard.node.devices.device import Device
from trainyard.node.devices.drivers import AMD_TOPOLOGY
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.structs import replace

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_VIDEO_MEMORY = ("1", "2")  # heap_type of a memory bank: frame buffer, public and private
_XGMI = "11"  # type of an io_link


def amd_gpus(topology: Path = Path(AMD_TOPOLOGY)) -> tuple[Device, ...]:
    """The GPUs in the order of their nodes, which is that of ROCr's indices. () without the driver."""
    nodes = sorted((int(folder.name), folder) for folder in _folders(topology) if folder.name.isdecimal())
    gpus: dict[str, Device] = {}  # number of the node -> device
    linked: dict[str, list[str]] = {}  # number of the node -> those of the nodes that XGMI connects it with
    for number, folder in nodes:
        facts = _properties(folder)
        if int(facts.get("simd_count", "0")) == 0:
            continue  # a processor
        index = len(gpus)
        unique_id, location = int(facts.get("unique_id", "0")), int(facts.get("location_id", "0"))
        address = f"{int(facts.get('domain', '0')):04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
        banks = map(_properties, _folders(folder / "mem_banks"))
        gpus[str(number)] = Device(
            AMD_GPU,
            f"GPU-{unique_id:016x}" if unique_id else str(index),
            index,
            _architecture(int(facts.get("gfx_target_version", "0"))),
            sum(int(bank.get("size_in_bytes", "0")) for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY),
            address,
            _numa_node(address),
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


def _numa_node(address: str) -> int:
    try:
        return int((_PCI_DEVICES / address / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


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
