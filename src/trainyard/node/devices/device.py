"""A device that a pod can request, and the devices of a machine."""

from __future__ import annotations

import msgspec


class Device(msgspec.Struct, frozen=True):
    """A whole GPU, or a MIG device. Two devices of a machine differ in `uuid`, which `CUDA_VISIBLE_DEVICES` or
    `ROCR_VISIBLE_DEVICES` takes.

    `resource`: as NVIDIA's and AMD's device plugins name it. `index`: of the GPU in the order of PCI addresses, as
    nvidia-smi has it. `memory`: in bytes, 0 if unknown. `numa_node`: -1 if unknown. `links`: the uuids of the GPUs that
    NVLink or XGMI connects it with. `gpu`: the uuid of the GPU, for a MIG device. `capability`: CUDA's compute
    capability ("9.0"), "" if unknown.
    """

    resource: str
    uuid: str
    index: int
    name: str = ""
    memory: int = 0
    pci_address: str = ""
    numa_node: int = -1
    links: tuple[str, ...] = ()
    gpu: str = ""
    capability: str = ""


class Inventory(msgspec.Struct, frozen=True):
    """The devices of a machine in the order of their indices. `driver`: the version of NVIDIA's driver, `cuda`: the
    newest CUDA that it serves ("12.4"), "" if unknown. `problems`: what was not found, and why; sentences for the
    user."""

    devices: tuple[Device, ...] = ()
    driver: str = ""
    cuda: str = ""
    problems: tuple[str, ...] = ()
