"""How many GPUs each worker of a script gets: those of --gpus, else an even share of what this machine has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainyard.objects.extended_resources import AMD_GPU, NVIDIA_GPU


class WorkerDevices(NamedTuple):
    """The limits of each worker, and a sentence that says who gets what; "" where there is nothing to say."""

    limits: Mapping[str, int]
    note: str = ""

    @property
    def total(self) -> int:
        """The number of devices of a worker."""
        return sum(self.limits.values())


def worker_devices(
    options: dict[str, Any], workers: int, takes_all: bool, machine: Callable[[], Mapping[str, int]]
) -> WorkerDevices:
    """`workers`: that may run at the same time. `takes_all`: without --gpus they get what there is."""
    if options["gpus"] == 0 or (options["gpus"] is None and not takes_all):
        return WorkerDevices({})
    available = machine()
    # A machine has GPUs of a vendor, or MIG devices; of several resources the first is given out.
    names = sorted(available, key=lambda name: (name not in (NVIDIA_GPU, AMD_GPU), -available[name], name))
    resource = names[0] if names else NVIDIA_GPU
    total = available.get(resource, 0)
    if options["gpus"] is not None:
        return WorkerDevices({resource: options["gpus"]})
    if not total:
        return WorkerDevices({})
    share, left = divmod(total, workers)
    if not share:
        text = f"this machine has {_gpus(total)}, fewer than {workers} workers: none gets one"
        return WorkerDevices({}, f"{text} (--gpus N and fewer --workers change it)")
    if workers == 1:
        return WorkerDevices({resource: share}, f"the worker gets {_all(total)} of this machine (--gpus changes it)")
    text = f"each of {workers} workers gets {share} of the {_gpus(total)} of this machine"
    text += f", and {left} {'is' if left == 1 else 'are'} left" if left else ""
    return WorkerDevices({resource: share}, f"{text} (--gpus changes it)")


def _all(total: int) -> str:
    return "the GPU" if total == 1 else f"all {total} GPUs"


def _gpus(total: int) -> str:
    return f"{total} GPU{'s' * (total != 1)}"
