"""NVIDIA's Xid errors, as the driver writes them to the kernel log while the node runs.

Rules:
- Where the kernel log cannot be read (kernel.dmesg_restrict, a container without it), a line of the log says so, and
  `doctor`: it is so for most users, and no program fails by it.
- An Xid of the hardware makes its device lost: no pod gets it until this node starts again, as with NVIDIA's device
  plugin. An Xid that a program causes does not.
- Only what is written after the start counts: an older error may have been mended by a reset.

A record is `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE` (Documentation/ABI/testing/dev-kmsg of Linux).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trainyard.node.devices.device import Device
from trainyard.node.devices.manager import DeviceManager
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.patterns import lazy_pattern

log = logging.getLogger(__name__)

KERNEL_LOG = Path("/dev/kmsg")
OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes, and that NVIDIA's device plugin ignores for this reason."""
_MAX_RECORD = 8192  # bytes; a read of /dev/kmsg with less room fails
_XID = lazy_pattern(r";(NVRM: Xid \(PCI:(?P<address>[\da-fA-F:.]+)\): (?P<xid>\d+).*)")


class XidError(NamedTuple):
    """`address`: of the GPU on the PCI bus, without its function ("0000:3b:00"); `text`: the message of the driver."""

    number: int
    address: str
    text: str

    @property
    def is_of_program(self) -> bool:
        """Whether the program causes it, rather than the hardware."""
        return self.number in OF_PROGRAMS


def xid_errors(records: str) -> list[XidError]:
    """The Xid errors in records of the kernel log."""
    matches = filter(None, map(_XID.search, records.splitlines()))
    return [XidError(int(match["xid"]), _address(match["address"]), match[1].strip()) for match in matches]


def affected(error: XidError, devices: Sequence[Device]) -> list[Device]:
    """The device of the error; of a GPU in MIG mode all its devices."""
    return [
        device
        for device in devices
        if device.resource != AMD_GPU and device.pci_address and _address(device.pci_address) == error.address
    ]


def _address(text: str) -> str:
    """Domain, bus and device: the driver writes `0000:3b:00`, NVML `00000000:3B:00.0`."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def unreadable_reason(path: Path = KERNEL_LOG) -> str:
    """Why this process cannot read the kernel log; "" if it can."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


class KernelLog:
    """Reads the kernel log for the devices of `manager`. `report`: called with the uid of each pod that has a device of
    an error, and the text."""

    def __init__(
        self,
        manager: DeviceManager,
        report: Callable[[str, str], object],
        path: Path = KERNEL_LOG,
    ) -> None:
        self._manager, self._report, self._path = manager, report, path
        self._lost: dict[str, str] = {}  # uuid -> reason

    async def run(self) -> None:
        """Read until cancelled."""
        await self._manager.known.wait()
        if any(device.resource != AMD_GPU for device in self._manager.devices):
            try:
                await self._read()
            except OSError as error:
                log.info("Xid errors are not seen: the kernel log cannot be read error=%s", error)
        await asyncio.Event().wait()

    async def _read(self) -> None:
        """Take the records from now on. Raises OSError."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if self._path.is_char_device():
                os.lseek(descriptor, 0, os.SEEK_END)
            loop.add_reader(descriptor, readable.set)
            while True:
                await readable.wait()
                readable.clear()
                self._take_all(descriptor)
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _take_all(self, descriptor: int) -> None:
        while True:
            try:
                records = os.read(descriptor, _MAX_RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the kernel has overwritten records that were not read yet: the next read goes on
                continue
            if not records:
                return
            for error in xid_errors(records.decode(errors="replace")):
                self._take(error)

    def _take(self, error: XidError) -> None:
        devices = affected(error, self._manager.devices)
        for device in devices:
            for uid, uuids in list(self._manager.assignments.items()):
                if device.uuid in uuids:
                    self._report(uid, f"GPU {device.index}: {error.text}")
        if not error.is_of_program:
            self._lost |= {device.uuid: f"Xid {error.number} in the kernel log" for device in devices}
            self._manager.set_lost(self._lost, "kernel log")
