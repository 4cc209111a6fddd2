"""The devices of this machine. NVIDIA's are read through NVML in a process of its own, so that a driver that hangs or a
library that does not match it costs a line, not the node.

Without a driver nothing is imported and no process is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE

import msgspec

from trainyard.node.devices import drivers, kfd
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.drivers import has_amd_driver as has_amd_driver
from trainyard.node.devices.drivers import has_nvidia_driver as has_nvidia_driver
from trainyard.objects.structs import replace

PROBE = "trainyard.node.devices.nvml_probe"
LIMIT = 20.0
"""Seconds for NVML. Without a process that keeps the driver's state (nvidia-persistenced), the driver initializes each
GPU anew, which takes seconds."""

_KILL_SECONDS = 1.0


async def discover(environ: Mapping[str, str], seconds: float | None = None) -> Inventory:
    """All devices of this machine, whatever the variables of the shell allow. Never raises for a driver that does not
    work: `problems` says what happened. `seconds`: of NVML at most."""
    nvidia = await _nvml_inventory(environ, seconds or LIMIT) if has_nvidia_driver(environ) else Inventory()
    try:
        amd = kfd.amd_gpus(Path(drivers.SYSFS)) if has_amd_driver() else ()
    except ValueError as error:
        amd, nvidia = (), replace(nvidia, problems=(*nvidia.problems, f"AMD's GPUs cannot be read: {error}"))
    return replace(nvidia, devices=(*nvidia.devices, *amd))


async def _nvml_inventory(environ: Mapping[str, str], seconds: float) -> Inventory:
    try:
        process = await _start_probe(environ, seconds)
    except OSError as error:
        return _failed(f"the process that asks NVML cannot be started: {error}")
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        return _failed(f"NVML did not answer within {seconds:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # Not longer: the kernel keeps a process for as long as the driver does not return.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_SECONDS):
                    await process.wait()
    if process.returncode:
        last_line = (errors.decode(errors="replace").strip() or "it printed nothing").splitlines()[-1]
        return _failed(f"the process that asks NVML ended with {process.returncode}: {last_line[:300]}")
    try:
        inventory = msgspec.json.decode(output, type=Inventory)
    except msgspec.MsgspecError as error:
        return _failed(f"the process that asks NVML printed no inventory: {error}")
    return replace(inventory, devices=tuple(sorted(inventory.devices, key=_order)))


async def _start_probe(environ: Mapping[str, str], seconds: float) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", PROBE, str(math.ceil(seconds) + 1)),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd="/",
        start_new_session=True,  # Ctrl-C in a terminal is for the node process alone
    )


def _order(device: Device) -> tuple[int, str]:
    return device.index, device.uuid if device.gpu else ""


def _failed(problem: str) -> Inventory:
    return Inventory(problems=(problem,))
