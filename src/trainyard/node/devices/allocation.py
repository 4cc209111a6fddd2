"""Which free devices a pod gets. Pure, and the same for the same free devices.

Rules: no device twice; several devices of a pod are neighbours where there are enough: first those that NVLink or XGMI
connects, then those of a NUMA node; otherwise those of the lowest indices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from trainyard.node.devices.device import Device

_LINK, _NUMA_NODE = 100, 1  # a link outweighs any number of shared NUMA nodes


def allocate(
    devices: Sequence[Device], taken: Collection[str], requests: Mapping[str, int]
) -> tuple[Device, ...] | None:
    """As many devices of each resource as are requested, in the order of their indices. None if there are too few.

    `taken`: the uuids of the devices that others have, or that are lost."""
    chosen: list[Device] = []
    for resource, count in requests.items():
        free = [device for device in devices if device.resource == resource and device.uuid not in taken]
        if len(free) < count:
            return None
        chosen += _neighbours(free, count)
    return tuple(device for device in devices if device in chosen)


def _neighbours(free: Sequence[Device], count: int) -> list[Device]:
    """The group with the highest affinity of those that grow from each device; the first of them if there are
    several."""
    if count in (0, len(free)):
        return list(free[:count])
    groups = [_grown(device, free, count) for device in (free[:1] if count == 1 else free)]
    return max(groups, key=_affinity)


def _grown(first: Device, free: Sequence[Device], count: int) -> list[Device]:
    group = [first]
    while len(group) < count:
        rest = [device for device in free if device not in group]
        group.append(max(rest, key=lambda device: sum(_affinity_of(device, member) for member in group)))
    return group


def _affinity(group: Sequence[Device]) -> int:
    return sum(_affinity_of(device, other) for index, device in enumerate(group) for other in group[:index])


def _affinity_of(device: Device, other: Device) -> int:
    same_node = device.numa_node == other.numa_node != -1
    return (_LINK if other.uuid in device.links or device.uuid in other.links else 0) + (_NUMA_NODE if same_node else 0)
