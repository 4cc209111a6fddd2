"""Whose the processes are that use a device: of a pod, or of another program of the machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from trainyard.objects.metric_points import GPU_MEMORY, GPU_UTILIZATION
from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceProcess, DeviceUsage, PodUsage, UsageReport

_MAX_COMMAND = 60  # characters


def with_owners(
    devices: Iterable[DeviceUsage], pods: Mapping[int, str], holders: Mapping[str, str]
) -> tuple[DeviceUsage, ...]:
    """The devices with the pod that has each, and the pod of each process, or its command line where it has none.
    `pods`: pid -> NAMESPACE/NAME; `holders`: uuid -> NAMESPACE/NAME."""
    return tuple(
        replace(
            device,
            pod=holders.get(device.uuid, ""),
            processes=tuple(_with_owner(process, pods.get(process.pid, "")) for process in device.processes),
        )
        for device in devices
    )


def with_devices(
    report: UsageReport,
    devices: Sequence[DeviceUsage],
    uids: Mapping[int, str],
    assigned: Mapping[str, Collection[str]],
) -> UsageReport:
    """The report with the devices of the node, and of each pod those that were given to it, with its own processes.

    uids: pid -> uid of its pod; assigned: uid of a pod -> uuids of its devices."""
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in report.pods}
    holders = {uuid: names[uid] for uid, uuids in assigned.items() if uid in names for uuid in uuids}
    owned = with_owners(devices, {pid: names[uid] for pid, uid in uids.items() if uid in names}, holders)

    def of_pod(pod: PodUsage) -> tuple[DeviceUsage, ...]:
        uuids, name = assigned.get(pod.uid, ()), names[pod.uid]
        return tuple(
            replace(device, processes=tuple(process for process in device.processes if process.pod == name))
            for device in owned
            if device.uuid in uuids
        )

    node = replace(report.node, devices=owned) if report.node else None
    return replace(report, pods=tuple(replace(pod, devices=of_pod(pod)) for pod in report.pods), node=node)


def use_by_pod(
    devices: Sequence[DeviceUsage], uids: Mapping[int, str], assigned: Mapping[str, Collection[str]]
) -> dict[str, dict[str, float]]:
    """uid of a pod with devices -> GPU_UTILIZATION and GPU_MEMORY, of its own processes, as far as they are known.
    Parameters: as of `with_devices`."""
    use: dict[str, dict[str, float]] = {}
    for uid, uuids in assigned.items():
        own = [device for device in devices if device.uuid in uuids]
        busy = [device.utilization for device in own if device.utilization is not None]
        memory = [process.memory for device in own for process in device.processes if uids.get(process.pid) == uid]
        if own:
            use[uid] = {**({GPU_UTILIZATION: mean(busy)} if busy else {}), GPU_MEMORY: float(sum(memory))}
    return use


def _with_owner(process: DeviceProcess, pod: str) -> DeviceProcess:
    return replace(process, pod=pod, command="" if pod else _command(process.pid))


def _command(pid: int) -> str:
    """The beginning of the command line of a process, "" where it cannot be read: it has ended, or is of another
    container."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()[:_MAX_COMMAND]
