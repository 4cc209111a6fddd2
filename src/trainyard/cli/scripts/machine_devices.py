"""The GPUs of this machine, for the commands that make or check manifests.

Without a driver nothing is imported and no process is started.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from trainyard.core import Config, Kind, parse_job
from trainyard.kinds.native_gang import NATIVE, pods_that_start_together
from trainyard.objects import Json, Problem
from trainyard.objects.extended_resources import is_device_resource, pod_requests


def machine_devices() -> Mapping[str, int]:
    """Resource -> number of the devices of this machine that the variables of this shell allow."""
    from trainyard.node.devices.discovery import discover, has_amd_driver, has_nvidia_driver

    if not (has_nvidia_driver(os.environ) or has_amd_driver()):
        return {}
    import asyncio

    from trainyard.node.devices.visibility import visible

    inventory = asyncio.run(discover(os.environ))
    return Counter(device.resource for device in visible(inventory.devices, os.environ).devices)


def device_requests(kind: Kind, job: Json) -> dict[str, int]:
    """Resource -> number of devices that have to be free together before a job starts: those of all its replicas, of an
    elastic job the smallest number of them, and of a gang its `minAvailable`."""
    parsed = parse_job(kind, job, Config(gang_scheduler=NATIVE))
    requests: Counter[str] = Counter()
    left = pods_that_start_together(parsed)
    for role in parsed.roles:
        count = min(role.replicas, left)
        left -= count
        for name, number in pod_requests(role.template or {}).items():
            if is_device_resource(name) and count:
                requests[name] += number * count
    return dict(requests)


def lacking_devices(kind: Kind, job: Json) -> list[Problem]:
    """A problem for each resource of which a valid job requests more than this machine has. A resource of which it has
    none is no problem: the pods run without it."""
    requests = device_requests(kind, job)
    available = machine_devices() if requests else {}
    return [
        Problem(
            "spec",
            f"its pods ask for {count} {name} together, and this machine has {available[name]}; "
            "lower the limits or the replicas",
        )
        for name, count in requests.items()
        if count > available.get(name, 0) > 0
    ]
