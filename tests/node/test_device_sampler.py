"""The use of GPUs as the node samples it: the real nvidia-ml-py over a stand-in for NVML, in a process of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.support.fake_nvml import GIB, FakeNvml, gpus, uuid
from tests.support.waiting import until_async
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.devices.sampler import DeviceSampler, sample_once
from trainyard.objects.usage import DeviceProcess, DeviceUsage


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
    assert manager.lost == {uuid(1): "GPU is lost"} and manager.allocatable() == {"nvidia.com/gpu": "1"}
    assert [device.lost for device in sampler.devices] == ["", "GPU is lost"]


async def test_without_devices_nothing_is_started(tmp_path: Path) -> None:
    manager = DeviceManager()
    await DeviceSampler(manager, {}, print).run()
