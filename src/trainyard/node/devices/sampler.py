"""The use of the node's GPUs, sampled by a process of its own (nvml_samples.py) while the node has some.

Rules:
- Nothing is started on a machine without NVIDIA's driver, or where it has no device.
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
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import cast

import msgspec

from trainyard.node.devices.manager import DeviceManager
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.usage import DeviceUsage

PROGRAM = "trainyard.node.devices.nvml_samples"
INTERVAL = 2.0  # seconds between two samples
SILENCE, RETRY = 20.0, 60.0  # seconds
_MAX_LINE = 1 << 20  # bytes of a sample


async def sample_once(environ: Mapping[str, str], seconds: float = SILENCE) -> tuple[DeviceUsage, ...]:
    """The use of all GPUs of this machine now; () where NVML does not answer in that time."""
    samples: list[tuple[DeviceUsage, ...]] = []
    with contextlib.suppress(OSError, TimeoutError):
        await _read(environ, samples.append, seconds, 1)
    return samples[0] if samples else ()


async def _read(
    environ: Mapping[str, str], take: Callable[[tuple[DeviceUsage, ...]], object], silence: float, count: int = 0
) -> None:
    """Take the samples of a process until it ends. Raises OSError, and TimeoutError when it is silent."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", PROGRAM, str(INTERVAL), str(count)),
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
        self._samples: tuple[DeviceUsage, ...] = ()
        self._time = 0.0

    async def run(self) -> None:
        """Sample until cancelled."""
        await self._manager.known.wait()
        while any(device.resource != AMD_GPU for device in self._manager.devices):
            try:
                await _read(self._environ, self._take, SILENCE)
            except TimeoutError:
                self._say(f"devices: NVML has not answered for {SILENCE:g} s; it is asked again in {RETRY:g} s")
            except OSError as error:
                self._say(f"devices: the process that samples them cannot be started: {error}")
            await asyncio.sleep(RETRY)
        await asyncio.Event().wait()

    @property
    def devices(self) -> tuple[DeviceUsage, ...]:
        """The devices that the node may give out, as last sampled; () without a sample of late."""
        return self._samples if self._clock() - self._time < SILENCE else ()

    def process_memory(self) -> dict[int, int]:
        """pid -> memory on all devices in bytes."""
        memory: dict[int, int] = {}
        for device in self.devices:
            for process in device.processes:
                memory[process.pid] = memory.get(process.pid, 0) + process.memory
        return memory

    def _take(self, samples: tuple[DeviceUsage, ...]) -> None:
        by_uuid = {sample.uuid: sample for sample in samples if sample.uuid}
        lost_indexes = {sample.index: sample.lost for sample in samples if not sample.uuid and sample.lost}
        known: list[DeviceUsage] = []
        for device in self._manager.devices:
            sample = by_uuid.get(device.uuid)
            if sample is None and (reason := lost_indexes.get(device.index)):
                sample = DeviceUsage(device.index, device.uuid, lost=reason)
            if sample is not None:
                name, memory = sample.name or device.name, sample.memory or device.memory
                known.append(msgspec.structs.replace(sample, name=name, memory=memory))
        self._samples, self._time = tuple(known), self._clock()
        self._manager.set_lost({sample.uuid: sample.lost for sample in known if sample.lost}, "samples")
