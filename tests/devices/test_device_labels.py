"""The labels that name the GPUs of a node, and what `kubectl describe node` shows of their use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainyard.node.devices.device import Device
from trainyard.node.devices.labels import device_labels, stale_labels
from trainyard.node.devices.use_report import FIRST_SECONDS, SECONDS, is_like, report_use, use_text
from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceProcess, DeviceUsage

GIB = 1 << 30
GPU, MIG, AMD = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"
H100 = Device(GPU, "GPU-0", 0, "NVIDIA H100 80GB HBM3", 81559 << 20, capability="9.0")


@pytest.mark.parametrize(
    ("devices", "labels"),
    [
        ((), {}),
        (
            (H100, replace(H100, uuid="GPU-1")),
            {
                f"{GPU}.count": "2",
                f"{GPU}.product": "NVIDIA-H100-80GB-HBM3",
                f"{GPU}.memory": "81559",
                f"{GPU}.compute.major": "9",
                f"{GPU}.compute.minor": "0",
            },
        ),
        (
            (H100, replace(H100, name="NVIDIA A100-SXM4-80GB", memory=81920 << 20, capability="8.0")),
            {f"{GPU}.count": "2", f"{GPU}.compute.minor": "0"},
        ),
        (
            (Device(MIG, "MIG-0", 0, "NVIDIA H100 MIG 1g.10gb", 10 * GIB),),
            {f"{MIG}.count": "1", f"{MIG}.product": "NVIDIA-H100-MIG-1g.10gb", f"{MIG}.memory": "10240"},
        ),
        (
            (Device(AMD, "GPU-a", 0, "AMD Instinct (MI300X) OAM", 191 * GIB + 900),),
            {f"{AMD}.product-name": "AMD_Instinct_MI300X_OAM", f"{AMD}.vram": "191G"},
        ),
        # What the driver does not tell, and a name that is no value of a label.
        ((Device(GPU, "GPU-0", 0, "-\u00dc " + "x" * 80),), {f"{GPU}.count": "1", f"{GPU}.product": "x" * 61}),
    ],
)
def test_the_labels_of_gpus(devices: tuple[Device, ...], labels: dict[str, str]) -> None:
    assert device_labels(devices) == labels


def test_labels_of_devices_that_are_gone_are_removed() -> None:
    stored = [f"{GPU}.count", f"{GPU}.present", f"{AMD}.vram", "a"]
    assert stale_labels(stored, [GPU]) == {f"{GPU}.count": None}


USED = DeviceUsage(0, "GPU-0", "H100", 80 * GIB, 20 * GIB, 50, (DeviceProcess(4711, 20 * GIB, command="x --token=y"),))


def test_a_command_line_does_not_leave_the_machine() -> None:
    assert use_text([USED]).splitlines() == [
        "0 H100: 20.0 GiB of 80.0 GiB, 50 % busy",
        "device 0: 20.0 GiB used by another program, pid 4711",
    ]


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"utilization": 59, "used": 28 * GIB}, True),
        ({"utilization": 60}, False),
        ({"utilization": None}, False),
        ({"used": 29 * GIB}, False),
        ({"lost": "x"}, False),
        ({"pod": "default/mnist-worker-0"}, False),
        ({"processes": ()}, False),
    ],
)
def test_a_small_change_of_the_use_is_not_written(changes: dict[str, object], same: bool) -> None:
    assert is_like([replace(USED, **changes)], [USED]) == same  # type: ignore[arg-type]


async def test_the_use_is_written_when_it_has_changed_and_at_most_once_a_minute() -> None:
    samples: list[Sequence[DeviceUsage]] = [(), (USED,), (USED,), (replace(USED, utilization=97),), ()]
    written: list[str] = []
    pauses: list[float] = []

    async def write(text: str) -> None:
        written.append(text.partition("\n")[0])

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(samples):
            raise StopAsyncIteration

    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await report_use(lambda: samples[len(pauses)], write, pause)
    assert written == ["0 H100: 20.0 GiB of 80.0 GiB, 50 % busy", "0 H100: 20.0 GiB of 80.0 GiB, 97 % busy", ""]
    assert pauses == [FIRST_SECONDS, SECONDS, SECONDS, SECONDS, FIRST_SECONDS]
