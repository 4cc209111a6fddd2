from __future__ import annotations

from itertools import combinations

import pytest

from trainyard.node.devices.allocation import allocate
from trainyard.node.devices.device import Device

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def machine(count: int, links: str = "", numa: str = "") -> list[Device]:
    """GPUs "0", "1", ...: `links` has pairs "01 23", `numa` the NUMA node of each."""
    pairs = links.split()
    return [
        Device(
            GPU,
            str(index),
            index,
            numa_node=int(numa[index]) if numa else -1,
            links=tuple(pair.replace(str(index), "") for pair in pairs if str(index) in pair),
        )
        for index in range(count)
    ]


def uuids(devices: tuple[Device, ...] | None) -> str | None:
    return None if devices is None else "".join(device.uuid for device in devices)


@pytest.mark.parametrize(
    ("what", "devices", "taken", "count", "expected"),
    [
        ("the lowest index", machine(4), "", 1, "0"),
        ("of those that are free", machine(4), "01", 1, "2"),
        ("too few", machine(4), "012", 2, None),
        ("all", machine(3), "", 3, "012"),
        ("no affinity: the lowest indices", machine(4), "1", 2, "02"),
        ("a pair that is linked", machine(4, "02 13"), "", 2, "02"),
        ("a linked pair that is free", machine(4, "02 13"), "0", 2, "13"),
        ("a link outweighs the NUMA node", machine(4, "03", "0011"), "", 2, "03"),
        ("the same NUMA node", machine(4, "", "0110"), "", 2, "03"),
        ("a whole NUMA node of eight", machine(8, "", "00001111"), "1", 4, "4567"),
        ("two linked pairs", machine(6, "05 14"), "", 4, "0145"),
        ("without neighbours all the same", machine(3, "12"), "1", 2, "02"),
    ],
)
def test_which_devices_a_pod_gets(
    what: str, devices: list[Device], taken: str, count: int, expected: str | None
) -> None:
    assert uuids(allocate(devices, set(taken), {GPU: count})) == expected


def test_a_pod_gets_devices_of_each_resource_it_requests_or_none() -> None:
    devices = [*machine(2), Device(MIG, "m", 2), Device(MIG, "n", 2)]
    assert uuids(allocate(devices, {"0"}, {GPU: 1, MIG: 2})) == "1mn"
    assert allocate(devices, {"m"}, {GPU: 1, MIG: 2}) is None
    assert allocate(devices, (), {GPU: 1, "nvidia.com/mig-2g.20gb": 1}) is None
    assert allocate(devices, (), {}) == ()


def test_in_every_small_machine_as_many_free_devices_as_requested_are_given() -> None:
    for links in ("", "01", "01 23", "01 12 23"):
        devices = machine(4, links, "0011")
        for size in range(5):
            for taken in combinations("0123", size):
                for count in range(6):
                    given = allocate(devices, taken, {GPU: count})
                    assert (given is None) == (count > 4 - size)
                    if given is not None:
                        assert len({device.uuid for device in given}) == count
                        assert not set(taken) & {device.uuid for device in given}
