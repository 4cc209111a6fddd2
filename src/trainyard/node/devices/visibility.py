"""Which devices the variables of a shell allow. Pure.

Rules:
- `CUDA_VISIBLE_DEVICES` is read as CUDA reads it: indices, UUIDs or unique beginnings of them, of GPUs and MIG devices;
  the first entry that is none of them ends the list, and so does -1; the empty value allows none. An index or the UUID
  of a GPU in MIG mode allows its first MIG device. Indices count in the order of PCI addresses, as nvidia-smi has them.
- `NVIDIA_VISIBLE_DEVICES` is for NVIDIA's container toolkit, which has carried it out already where there are as many
  devices as it names. `all`, `void`, the empty value, and a path (of the device plugin) allow all, `none` allows none.
- `ROCR_VISIBLE_DEVICES` has indices or UUIDs of AMD's GPUs, `HIP_VISIBLE_DEVICES` (without it `CUDA_VISIBLE_DEVICES`)
  indices among those that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainyard.node.devices.device import Device
from trainyard.objects.extended_resources import AMD_GPU

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",  # the one of OpenCL
)


class Visibility(NamedTuple):
    """The devices that may be used, in their order, and a sentence for each variable that names what is not there."""

    devices: tuple[Device, ...]
    problems: tuple[str, ...] = ()


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Visibility:
    """The devices that the variables allow."""
    nvidia = [device for device in devices if device.resource != AMD_GPU]
    amd = [device for device in devices if device.resource == AMD_GPU]
    problems: list[str] = []

    def bounded(name: str, candidates: Sequence[Device], positions: bool = False) -> list[Device]:
        if (value := environ.get(name)) is None or not candidates:
            return list(candidates)
        allowed, unknown = select(value, candidates, positions)
        if unknown:
            problems.append(f"{name}={value}: there is no device {unknown}; it and what follows it are ignored")
        return [device for device in candidates if device in allowed]

    toolkit = _allowed_by_toolkit(nvidia, environ.get("NVIDIA_VISIBLE_DEVICES"))
    nvidia = [device for device in bounded("CUDA_VISIBLE_DEVICES", nvidia) if device in toolkit]
    amd = bounded("ROCR_VISIBLE_DEVICES", amd)
    amd = bounded("HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES", amd, True)
    return Visibility((*nvidia, *amd), tuple(problems))


def select(value: str, candidates: Sequence[Device], positions: bool = False) -> tuple[list[Device], str]:
    """The devices that a list of indices and UUIDs names, and the first entry that names none, "" without one.
    `positions`: an index is a position in `candidates`, rather than the index of the device."""
    selected: list[Device] = []
    for entry in map(str.strip, value.split(",")):
        if entry.lstrip("-").isdecimal():
            number = int(entry)
            by_index = candidates[number : number + 1] if positions else _first_of(candidates, number)
            matching = list(by_index) if number >= 0 else []
        else:
            matching = _by_uuid(entry, candidates)
        if not matching:
            return selected, entry if entry not in ("", "-1") else ""
        selected += [device for device in matching if device not in selected]
    return selected, ""


def _first_of(candidates: Sequence[Device], index: int) -> list[Device]:
    return [device for device in candidates if device.index == index][:1]


def _by_uuid(entry: str, candidates: Sequence[Device]) -> list[Device]:
    if not entry:
        return []
    own = [device for device in candidates if device.uuid.startswith(entry)]
    if own:
        return own if len(own) == 1 else [device for device in own if device.uuid == entry]
    gpus = {device.gpu for device in candidates if device.gpu.startswith(entry)}
    return [device for device in candidates if {device.gpu} == gpus][:1]


def _allowed_by_toolkit(devices: Sequence[Device], value: str | None) -> Sequence[Device]:
    if value is None or value in ("", "all", "void") or value.startswith("/"):
        return devices
    if value == "none":
        return ()
    entries = value.split(",")
    if len(entries) == len({device.gpu or device.uuid for device in devices}):
        return devices
    gpus = [device for entry in entries for device in _named(entry.strip(), devices)]
    return gpus or devices  # in a container: the indices are those of its host


def _named(entry: str, devices: Sequence[Device]) -> list[Device]:
    """The GPU of that index or UUID, or all its MIG devices; a MIG device by its UUID or as `GPU:MIG`."""
    gpu, _, mig = entry.partition(":")
    if entry.isdecimal() or mig:
        of_gpu = [device for device in devices if str(device.index) == gpu]
        return [device for device in of_gpu if device.gpu][int(mig) :][:1] if mig.isdecimal() else of_gpu
    return [device for device in devices if entry in (device.uuid, device.gpu)]
