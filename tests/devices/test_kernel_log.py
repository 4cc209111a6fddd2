"""Xid errors in the kernel log: a FIFO stands for /dev/kmsg."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import until_async
from trainyard.node.devices import drivers
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.kernel_log import KernelLog, affected, unreadable_reason, xid_errors
from trainyard.node.devices.manager import DeviceManager

GPU = "nvidia.com/gpu"
DEVICES = tuple(Device(GPU, f"GPU-{index}", index, pci_address=f"00000000:{index}B:00.0") for index in range(2))
FALLEN = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4711, name=python, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python, Ch 00000008, MMU Fault"


def record(message: str) -> str:
    return f"4,1234,98765432,-;{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1b:00.0\n"


def test_xid_errors_are_read_from_records() -> None:
    text = record("usb 1-1: new device") + record(FALLEN) + record(f"said: {FAULT}")
    (error,) = xid_errors(text)
    assert error == (79, "0000:1b:00", FALLEN) and not error.is_of_program
    assert [device.index for device in affected(error, DEVICES)] == [1]
    (fault,) = xid_errors(record(FAULT))
    assert fault.is_of_program
    # Old drivers: without the domain's colon-separated function, and in capitals.
    assert xid_errors(record("NVRM: Xid (PCI:0000:1B:00): 13, Graphics Exception"))[0].address == "0000:1b:00"


def test_an_error_of_a_gpu_is_one_of_all_its_mig_devices() -> None:
    migs = [Device("nvidia.com/mig-1g.10gb", f"MIG-{i}", 1, pci_address="00000000:1B:00.0", gpu="G") for i in range(2)]
    others = [Device("amd.com/gpu", "GPU-a", 0, pci_address="0000:1b:00.0"), Device(GPU, "GPU-0", 0)]
    assert affected(xid_errors(record(FALLEN))[0], [*migs, *others]) == migs


class World(NamedTuple):
    manager: DeviceManager
    reports: list[tuple[str, str]]
    descriptor: int  # to write records to

    def write(self, message: str) -> None:
        os.write(self.descriptor, record(message).encode())


@asynccontextmanager
async def running(folder: Path, path: Path) -> AsyncIterator[World]:
    async def discover(environ: object) -> Inventory:
        return Inventory(DEVICES)

    reports: list[tuple[str, str]] = []
    manager = DeviceManager(folder, {}, lambda _: None, discover=discover)
    log = KernelLog(manager, lambda uid, text: reports.append((uid, text)), path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(log.run())]
    try:
        await manager.known.wait()
        yield World(manager, reports, descriptor)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        os.close(descriptor)


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: True)
    monkeypatch.setattr(drivers, "has_amd_driver", lambda: False)


async def test_the_pod_of_the_device_learns_of_the_error_and_hardware_errors_lose_the_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    async with running(tmp_path, tmp_path / "kmsg") as world:
        world.manager.assignments = {"a": ("GPU-0",), "b": ("GPU-1",)}
        world.write(FAULT)
        await until_async(lambda: world.reports, "the report of the fault")
        assert world.reports == [("b", f"GPU 1: {FAULT}")] and world.manager.lost == {}
        world.write(FALLEN)
        await until_async(lambda: world.manager.lost, "the device is lost")
        assert world.manager.lost == {"GPU-1": "Xid 79 in the kernel log"}
        assert world.manager.allocatable() == {GPU: "1"}
        assert world.manager.lost_of_pod("b") == "GPU 1 (GPU-1) is lost: Xid 79 in the kernel log"
        assert (world.manager.lost_of_pod("a"), world.manager.lost_of_pod("b", "samples")) == ("", "")


async def test_a_kernel_log_that_cannot_be_read_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kmsg").write_bytes(b"")  # epoll refuses regular files, as the kernel a user without CAP_SYSLOG
    with caplog.at_level("INFO", "trainyard.node.devices.kernel_log"):
        async with running(tmp_path, tmp_path / "kmsg") as world:
            await until_async(lambda: caplog.messages, "the line of the log")
            assert "Xid errors are not seen: the kernel log cannot be read" in caplog.messages[0]
            assert world.manager.lost == {}


def test_why_the_kernel_log_cannot_be_read(tmp_path: Path) -> None:
    assert unreadable_reason(tmp_path / "kmsg") == f"{tmp_path}/kmsg: No such file or directory"
    (tmp_path / "kmsg").touch()
    assert unreadable_reason(tmp_path / "kmsg") == ""
