"""The use of the node's GPUs, sampled by a process of its own for each driver (nvml_samples.py, kfd_samples.py) of
which the node has some.

Rules:
- Nothing is started on a machine without a driver, or where it has no device.
- A process that prints nothing for SILENCE seconds is killed, and started again after RETRY seconds: a driver that
  hangs costs a line, not the node.
- What was sampled longer ago than SILENCE is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import cast

import msgspec

from trainyard.node.devices import drivers
from trainyard.node.devices.device import Device
from trainyard.node.devices.manager import DeviceManager
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.usage import DeviceUsage

NVML, KFD = "trainyard.node.devices.nvml_samples", "trainyard.node.devices.kfd_samples"  # the programs
SAMPLES = "samples"  # the source of what this module tells the manager
_LABELS = {NVML: "NVML", KFD: "AMD's driver"}
INTERVAL = 2.0  # seconds between two samples
SILENCE, RETRY = 20.0, 60.0  # seconds
_MAX_LINE = 1 << 20  # bytes of a sample


async def sample_once(environ: Mapping[str, str], seconds: float = SILENCE) -> tuple[DeviceUsage, ...]:
    """The use of all GPUs of this machine now, without those of a driver that does not answer in that time."""
    samples: list[DeviceUsage] = []
    loaded = {NVML: drivers.has_nvidia_driver(environ), KFD: drivers.has_amd_driver()}
    for program in (program for program, is_loaded in loaded.items() if is_loaded):
        with contextlib.suppress(OSError, TimeoutError):
            await _read(program, environ, samples.extend, seconds, 1)
    return tuple(samples)


async def _read(
    program: str,
    environ: Mapping[str, str],
    take: Callable[[tuple[DeviceUsage, ...]], object],
    silence: float,
    count: int = 0,
) -> None:
    """Take the samples of a process until it ends. Raises OSError, and TimeoutError when it is silent."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", program, str(INTERVAL), str(count), drivers.SYSFS),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd="/",
        limit=_MAX_LINE,
        start_new_session=True,  # Ctrl-C in a terminal is for the node process alone
    )
    output = cast(asyncio.StreamReader, process.stdout)
    try:
        while True:
            async with asyncio.timeout(silence):
                line = await output.readline()
            if not line:
                return
            with contextlib.suppress(msgspec.MsgspecError):
                take(msgspec.json.decode(line, type=tuple[DeviceUsage, ...]))
    except ValueError:  # a line that is too long
        return
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        with contextlib.suppress(TimeoutError):  # the kernel keeps a process for as long as the driver does not return
            async with asyncio.timeout(1.0):
                await process.wait()


class DeviceSampler:
    """Samples the devices of `manager`, which learns from it which are lost."""

    def __init__(
        self,
        manager: DeviceManager,
        environ: Mapping[str, str],
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager, self._environ, self._say, self._clock = manager, environ, say, clock
        self._samples: dict[str, tuple[float, tuple[DeviceUsage, ...]]] = {}  # by program: the last ones and their time

    async def run(self) -> None:
        """Sample until cancelled."""
        await self._manager.known.wait()
        async with asyncio.TaskGroup() as group:
            for program in (NVML, KFD):
                if self._devices_of(program):
                    group.create_task(self._sample(program))
        await asyncio.Event().wait()

    async def _sample(self, program: str) -> None:
        while True:
            try:
                await _read(program, self._environ, partial(self._take, program), SILENCE)
            except TimeoutError:
                text = f"{_LABELS[program]} has not answered for {SILENCE:g} s; it is asked again in {RETRY:g} s"
                self._say(f"devices: {text}")
            except OSError as error:
                self._say(f"devices: the process that samples them cannot be started: {error}")
            await asyncio.sleep(RETRY)

    def _devices_of(self, program: str) -> list[Device]:
        """The devices of the node that the program samples."""
        return [device for device in self._manager.devices if (device.resource == AMD_GPU) == (program == KFD)]

    @property
    def devices(self) -> tuple[DeviceUsage, ...]:
        """The devices that the node may give out, as last sampled, without those that have no sample of late."""
        now = self._clock()
        return tuple(device for at, samples in self._samples.values() if now - at < SILENCE for device in samples)

    def process_memory(self) -> dict[int, int]:
        """pid -> memory on all devices in bytes."""
        memory: dict[int, int] = {}
        for device in self.devices:
            for process in device.processes:
                memory[process.pid] = memory.get(process.pid, 0) + process.memory
        return memory

    def _take(self, program: str, samples: tuple[DeviceUsage, ...]) -> None:
        by_uuid = {sample.uuid: sample for sample in samples if sample.uuid}
        lost_indexes = {sample.index: sample.lost for sample in samples if not sample.uuid and sample.lost}
        known: list[DeviceUsage] = []
        for device in self._devices_of(program):
            sample = by_uuid.get(device.uuid)
            if sample is None and (reason := lost_indexes.get(device.index)):
                sample = DeviceUsage(device.index, device.uuid, lost=reason)
            if sample is not None:
                name, memory = sample.name or device.name, sample.memory or device.memory
                known.append(msgspec.structs.replace(sample, name=name, memory=memory, resource=device.resource))
        self._samples[program] = self._clock(), tuple(known)
        if program == NVML:
            self._manager.set_lost({sample.uuid: sample.lost for sample in known if sample.lost}, SAMPLES)
