"""GPUs as people read them, in status, doctor, the page and the Node object."""

from __future__ import annotations

import pytest

from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceProcess, DeviceUsage
from trainyard.views.device_view import device_lines

GIB = 1 << 30
IDLE = DeviceUsage(0, "GPU-a", "NVIDIA H100", 80 * GIB, 0, 0)
USE = "0 NVIDIA H100: 0 B of 80.0 GiB, 0 % busy"
POD = "default/mnist-worker-0"


@pytest.mark.parametrize(
    ("device", "lines"),
    [
        (IDLE, [USE]),
        (replace(IDLE, pod=POD), [f"{USE}; given to {POD}"]),
        (replace(IDLE, pod=POD, processes=(DeviceProcess(9, GIB, POD),)), [f"{USE}; {POD} 1.0 GiB"]),
        (
            replace(IDLE, pod=POD, processes=(DeviceProcess(9, GIB, command="python x.py"),)),
            [f"{USE}; given to {POD}", "device 0: 1.0 GiB used by another program, pid 9 (python x.py)"],
        ),
        (replace(IDLE, lost="x"), ["0 NVIDIA H100: lost: x; no pod gets it"]),
    ],
)
def test_a_device_has_its_use_and_who_has_it(device: DeviceUsage, lines: list[str]) -> None:
    assert device_lines([device]) == lines
