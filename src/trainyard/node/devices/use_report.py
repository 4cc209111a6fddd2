"""The use of the GPUs in the Node object, for `kubectl describe node`.

Rules:
- It is written when there is a first sample, and then at most once a minute, if the use has changed by about a tenth:
  each write of a Node reaches all programs that watch it.
- Of another program of the machine it has no command line: whoever reads Nodes is not of this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceUsage
from trainyard.views.device_view import device_lines

SECONDS = 60.0  # between two writes
FIRST_SECONDS = 2.0  # between two looks for the first sample


def use_text(devices: Sequence[DeviceUsage]) -> str:
    """A line for each device, and for each process that is of no pod."""
    return "\n".join(device_lines([_without_commands(device) for device in devices]))


def is_like(devices: Sequence[DeviceUsage], written: Sequence[DeviceUsage]) -> bool:
    """Whether the use of the devices is about what was written: less than a tenth of memory and time differs, and the
    same pods and programs use them."""
    return len(devices) == len(written) and all(map(_is_like, devices, written))


async def report_use(
    read: Callable[[], Sequence[DeviceUsage]],
    write: Callable[[str], Awaitable[object]],
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Write the use of the devices until cancelled."""
    written: Sequence[DeviceUsage] = ()
    while True:
        devices = read()
        if not is_like(devices, written):
            await write(use_text(devices))
            written = devices
        await pause(SECONDS if written else FIRST_SECONDS)


def _is_like(device: DeviceUsage, written: DeviceUsage) -> bool:
    users, before = ({(process.pid, process.pod) for process in usage.processes} for usage in (device, written))
    busy, busy_before = device.utilization or 0, written.utilization or 0
    same = (device.uuid, device.lost, device.pod, users) == (written.uuid, written.lost, written.pod, before)
    return same and abs(busy - busy_before) < 10 and abs(device.used - written.used) * 10 <= device.memory


def _without_commands(device: DeviceUsage) -> DeviceUsage:
    return replace(device, processes=tuple(replace(process, command="") for process in device.processes))
