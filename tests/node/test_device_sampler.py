"""The use of GPUs as the node samples it: the real nvidia-ml-py over a stand-in for NVML, in a process of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.fake_amd import FakeAmd
from tests.support.fake_nvml import GIB, FakeNvml, gpus, uuid
from tests.support.waiting import until_async
from trainyard.node.devices import drivers
from trainyard.node.devices.kfd import amd_usage
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.devices.processes import with_devices
from trainyard.node.devices.sampler import DeviceSampler, sample_once
from trainyard.objects.usage import DeviceProcess, DeviceUsage, NodeUsage, PodUsage, UsageReport


def environ(nvml: FakeNvml) -> dict[str, str]:
    return {**os.environ, **nvml.environ}


async def test_a_sample_has_memory_utilisation_and_processes(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set([*gpus(2), f"used 1 {20 * GIB}", "busy 1 97 40", f"process 1 4711 {20 * GIB}"])
    idle, busy = await sample_once(environ(nvml))
    name = "NVIDIA H100 80GB HBM3"
    assert idle == DeviceUsage(0, uuid(0), name, 80 * GIB, 0, 0)
    process = DeviceProcess(4711, 20 * GIB)
    assert busy == DeviceUsage(1, uuid(1), name, 80 * GIB, 20 * GIB, 97, (process,))


async def test_mig_devices_are_sampled_by_themselves(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set([*gpus(1), "mig-mode 0", f"mig 0 MIG-1 NVIDIA_H100_MIG_1g.10gb {10 * GIB}"])
    (sample,) = await sample_once(environ(nvml))
    assert (sample.uuid, sample.memory) == ("MIG-1", 10 * GIB)


async def test_a_library_that_hangs_gives_no_sample(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set([*gpus(1), "hang nvmlDeviceGetCount_v2"])
    assert await sample_once(environ(nvml), 0.5) == ()


async def test_gpus_of_amd_are_sampled_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "SYSFS", str(tmp_path))
    monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: False)
    amd = FakeAmd(tmp_path, 2)
    amd.set(1, 20 * GIB, 97)
    amd.set_process(1, 4711, 19 * GIB)
    idle, busy = await sample_once({})
    assert idle == DeviceUsage(0, "GPU-0000000000000001", "gfx942", 192 * GIB, 0, 0)
    process = DeviceProcess(4711, 19 * GIB)
    assert busy == DeviceUsage(1, "GPU-0000000000000002", "gfx942", 192 * GIB, 20 * GIB, 97, (process,))


def test_what_amds_driver_does_not_tell_is_missing(tmp_path: Path) -> None:
    amd = FakeAmd(tmp_path, 1)
    amd.set_process(0, 4711, GIB)
    (tmp_path / "bus/pci/devices/0000:01:00.0/gpu_busy_percent").write_text("")
    for file in (tmp_path / "bus/pci/devices/0000:01:00.0").glob("mem_info*"):
        file.unlink()
    (usage,) = amd_usage(tmp_path)
    assert (usage.memory, usage.used, usage.utilization) == (192 * GIB, GIB, None)


async def test_both_drivers_are_sampled_each_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML that hangs costs the samples of its own devices alone."""
    monkeypatch.setattr(drivers, "SYSFS", str(tmp_path))
    FakeAmd(tmp_path, 1)
    nvml = FakeNvml(tmp_path, 1)
    manager = DeviceManager(tmp_path, environ(nvml), lambda _: None)
    sampler = DeviceSampler(manager, environ(nvml), lambda _: None)
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(sampler.run())]
    try:
        await manager.known.wait()
        nvml.set([*gpus(1), "hang nvmlDeviceGetCount_v2"])
        await until_async(lambda: "gfx942" in [device.name for device in sampler.devices], "a sample of AMD's GPU")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert manager.capacity() == {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}


async def test_a_lost_device_is_reported_to_the_manager(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, 2)
    messages: list[str] = []
    manager = DeviceManager(tmp_path, environ(nvml), messages.append)
    sampler = DeviceSampler(manager, environ(nvml), messages.append)
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(sampler.run())]
    try:
        await until_async(lambda: len(sampler.devices) == 2, "a sample of both devices")
        nvml.set([*gpus(2), "lost 1"])
        await until_async(lambda: manager.lost, "the device is lost")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert manager.lost == {uuid(1): "the driver cannot reach it"} and manager.allocatable() == {"nvidia.com/gpu": "1"}
    assert [device.lost for device in sampler.devices] == ["", "the driver cannot reach it"]


def test_each_process_is_of_a_pod_or_another_program() -> None:
    mine, other = DeviceProcess(10, GIB), DeviceProcess(os.getpid(), 20 * GIB)
    devices = [DeviceUsage(index, uuid(index), processes=(mine, other)) for index in range(2)]
    pods = (PodUsage("default", "mnist-worker-0", "u", 0.0, 1.0, ()), PodUsage("default", "ps-0", "v", 0.0, 1.0, ()))
    report = UsageReport(pods, NodeUsage("local", 0.0, 1.0, 0.0, 0))
    report = with_devices(report, devices, {10: "u", 11: "gone"}, {"u": {uuid(1)}})
    assert report.node is not None and [device.index for device in report.node.devices] == [0, 1]
    assert [device.pod for device in report.node.devices] == ["", "default/mnist-worker-0"]
    owned, foreign = report.node.devices[0].processes
    assert (owned.pod, owned.command, foreign.pod) == ("default/mnist-worker-0", "", "") and "python" in foreign.command
    assert [(device.index, device.processes) for device in report.pods[0].devices] == [(1, (owned,))]
    assert report.pods[1].devices == ()
