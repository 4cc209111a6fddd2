"""The real nvidia-ml-py over a library that the tests build (tests/support/fake_nvml.py)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_amd import FakeAmd, write_nodes
from tests.support.fake_nvml import GIB, LIBRARY, FakeNvml, gpus, uuid
from trainyard.node.devices import discovery, drivers, kfd
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.discovery import discover
from trainyard.node.devices.drivers import has_nvidia_driver

LIMIT = 120.0  # seconds; these tests run beside others


async def read(machine: FakeNvml, seconds: float = LIMIT) -> Inventory:
    return await discover({"PATH": os.environ["PATH"], **machine.environ}, seconds)


async def test_gpus_are_found_in_the_order_of_their_indices(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path)
    machine.set([*gpus(3), "link 0 2"])
    inventory = await read(machine)
    assert (inventory.driver, inventory.cuda, inventory.problems) == ("570.86", "12.8", ())
    assert [device.uuid for device in inventory.devices] == [uuid(0), uuid(1), uuid(2)]
    assert [device.links for device in inventory.devices] == [(uuid(2),), (), (uuid(0),)]
    first = inventory.devices[0]
    assert (first.resource, first.name, first.memory) == ("nvidia.com/gpu", "NVIDIA H100 80GB HBM3", 80 * GIB)
    assert (first.pci_address, first.numa_node, first.gpu) == ("00000000:00:00.0", -1, "")


async def test_mig_devices_take_the_place_of_their_gpu(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path)
    profiles = [f"mig 1 MIG-1 NVIDIA_A100_MIG_1g.10gb {10 * GIB}", "mig 1 MIG-2 NVIDIA_A100_MIG_1g.10gb+me 1"]
    machine.set([*gpus(3), *profiles, "mig-mode 2"])
    inventory = await read(machine)
    resources = {device.uuid: (device.resource, device.gpu, device.index) for device in inventory.devices}
    assert resources == {
        uuid(0): ("nvidia.com/gpu", "", 0),
        "MIG-1": ("nvidia.com/mig-1g.10gb", uuid(1), 1),
        "MIG-2": ("nvidia.com/mig-1g.10gb.me", uuid(1), 1),
    }


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (["fail nvmlInitWithFlags 18"], "NVML does not match the NVIDIA driver"),
        (["fail nvmlInitWithFlags 9"], "NVML does not work"),
        (["fail nvmlDeviceGetCount_v2 999"], "the process that asks NVML ended with 1: "),
        ([*gpus(1), "lost 0"], "GPU 0 cannot be used: GPU is lost"),
        ([*gpus(1), "fail nvmlDeviceGetUUID 4"], "GPU 0 cannot be used: "),
    ],
)
async def test_nvml_that_does_not_work_is_reported_in_one_line(tmp_path: Path, lines: list[str], part: str) -> None:
    machine = FakeNvml(tmp_path)
    machine.set(lines)
    inventory = await read(machine)
    (problem,) = inventory.problems
    assert inventory.devices == () and part in problem and "\n" not in problem


async def test_of_several_gpus_the_others_are_used(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path)
    machine.set([*gpus(3), "lost 1"])
    assert [device.index for device in (await read(machine)).devices] == [0, 2]


async def test_nvml_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path)
    machine.set([*gpus(1), "hang nvmlDeviceGetName"])
    assert (await read(machine, 0.5)).problems == ("NVML did not answer within 0.5 s",)


async def test_an_older_driver_lacks_functions(tmp_path: Path) -> None:
    newer = ("nvmlDeviceGetMigMode", "nvmlDeviceGetP2PStatus", "nvmlSystemGetCudaDriverVersion")
    machine = FakeNvml(tmp_path, 2, missing=newer)
    inventory = await read(machine)
    assert [device.uuid for device in inventory.devices] == [uuid(0), uuid(1)]
    assert (inventory.cuda, inventory.problems) == ("", ())


async def test_a_library_that_cannot_be_loaded_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text("no library")
    inventory = await discover({"LD_LIBRARY_PATH": str(tmp_path)})
    (problem,) = inventory.problems
    assert problem.startswith("NVML cannot be loaded: ") and LIBRARY in problem


async def test_without_a_driver_no_process_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drivers, "_NVIDIA_FILES", (str(tmp_path / "nothing"),))
    monkeypatch.setattr(drivers, "SYSFS", str(tmp_path / "nothing"))
    monkeypatch.setattr(asyncio, "create_subprocess_exec", None)
    assert not has_nvidia_driver({"LD_LIBRARY_PATH": f"{tmp_path}::/nowhere"})
    assert await discover({}) == Inventory()


def test_a_node_imports_no_nvml() -> None:
    """nvidia-ml-py is imported by the process that asks NVML, and by no other."""
    program = "import sys, trainyard.app.local, trainyard.node.kubelet.node; print('pynvml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_the_process_ends_by_itself(tmp_path: Path) -> None:
    """A node that was killed does not leave it behind."""
    machine = FakeNvml(tmp_path)
    machine.set(["hang nvmlInitWithFlags"])
    command = [sys.executable, "-m", discovery.PROBE, "1"]
    result = subprocess.run(command, env={**os.environ, **machine.environ}, timeout=60, stdout=subprocess.DEVNULL)
    assert result.returncode < 0


def test_the_program_prints_an_inventory(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, 1)
    result = subprocess.run(
        [sys.executable, "-m", discovery.PROBE], env={**os.environ, **machine.environ}, capture_output=True, check=True
    )
    assert json.loads(result.stdout)["devices"][0]["uuid"] == uuid(0)


def test_gpus_of_amd_are_read_from_the_kernel(tmp_path: Path) -> None:
    gpu = {"simd_count": 304, "gfx_target_version": 90402, "domain": 0}
    write_nodes(
        tmp_path,
        [
            {"simd_count": 0, "cpu_cores_count": 64},
            {**gpu, "unique_id": 0xABCDEF, "location_id": 0x6500, "type": 11, "node_to": 2},
            {**gpu, "unique_id": 0, "location_id": 0x7508, "type": 2, "node_to": 0},
        ],
    )
    first, second = kfd.amd_gpus(tmp_path)
    assert first == Device(
        "amd.com/gpu", "GPU-0000000000abcdef", 0, "gfx942", 192 * GIB, "0000:65:00.0", -1, links=("1",)
    )
    assert (second.uuid, second.pci_address, second.links) == ("1", "0000:75:01.0", ())
    assert kfd.amd_gpus(tmp_path / "nothing") == ()


def test_the_partitions_of_a_gpu_of_amd_that_share_its_id_are_told_apart(tmp_path: Path) -> None:
    gpu = {"simd_count": 38, "unique_id": 7, "location_id": 0x6500}
    write_nodes(tmp_path, [{"simd_count": 0}, gpu, gpu, {**gpu, "unique_id": 8}])
    assert [device.uuid for device in kfd.amd_gpus(tmp_path)] == ["0", "1", "GPU-0000000000000008"]


def test_a_gpu_of_amd_has_the_name_of_its_board_where_the_driver_knows_it(tmp_path: Path) -> None:
    FakeAmd(tmp_path, 2)
    (tmp_path / "bus/pci/devices/0000:01:00.0/product_name").write_text("AMD Instinct MI300X OAM\n")
    (tmp_path / "bus/pci/devices/0000:02:00.0/product_name").write_text("\n")
    assert [device.name for device in kfd.amd_gpus(tmp_path)] == ["AMD Instinct MI300X OAM", "gfx942"]
