"""CPU time and memory of containers, sampled from the processes below their inits.

Rules:
- One pass every INTERVAL seconds, and none while no container runs. It runs in a thread: the event loop serves the API.
- The memory of a container is the sum over its processes, in which a page that several of them share counts once: RSS
  without the shared part that smaps_rollup has shown last. That file is read for a process at most every
  PSS_INTERVAL seconds, at once when processes of its container have started or ended, and for at most PSS_BUDGET
  seconds in a pass. Until it is read, and where it cannot be read, RSS counts.
- CPU time never runs backwards. A process can be counted twice (its parent reaps it while the pass reads both) or not
  at all (as it ends): a total that is lower than before is ignored once, and one that is higher than the machine can
  have worked since.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from trainyard.node.kubelet.usage.process_table import (
    MachineEntry,
    ProcessReader,
    ProcessTable,
    cpu_time,
    main_process,
    members,
    process_reader,
)
from trainyard.node.kubelet.usage.progress_sampler import ProgressSampler
from trainyard.node.kubelet.usage.stop_writes import StopWatcher
from trainyard.objects.no_progress import Activity
from trainyard.objects.usage import DISK, SLEEP

INTERVAL = 2.0  # seconds between two passes
PSS_INTERVAL, PSS_BUDGET = 10.0, 0.005  # seconds
MAX_PEAKS = 1000
IDLE_CORES = 0.1  # a run that uses less waits
_SHORTEST_WINDOW = 1.0  # seconds; over less the rate of a process that starts means nothing
_CPU_SLACK = 1.0  # seconds of CPU time: clocks of the kernel and of this process differ
_LITTLE_CPU = 0.05  # seconds between two passes
_SLEEPING = frozenset({"hrtimer_nanosleep", "do_nanosleep"})  # where Linux waits in nanosleep(2), as time.sleep()


class Measurement(NamedTuple):
    """A container at one time: CPU time since its start in seconds, memory in bytes. `is_proportional`: the pages that
    processes share are counted once. `stopped_pid`: a process that a signal has stopped, 0 for none. `wait`: see
    ContainerUsage."""

    cpu: float
    memory: int
    is_proportional: bool
    stopped_pid: int = 0
    wait: str = ""
    device_memory: int = 0


class UsageSample(NamedTuple):
    """The usage of a container. `time`: Unix time; `window`: seconds over which `cores` is the mean; `cpu`: since the
    start, seconds; memory and peaks in bytes, `device_memory` and `device_peak` on GPUs; others: see Measurement."""

    time: float
    window: float
    cores: float
    cpu: float
    memory: int
    peak: int
    is_proportional: bool
    stopped_pid: int = 0
    wait: str = ""
    device_memory: int = 0
    device_peak: int = 0


class MachineSample(NamedTuple):
    """The usage of the machine, as UsageSample."""

    time: float
    window: float
    cores: float
    memory: int


class _SharedPages(NamedTuple):
    """The shared part of a process's memory in bytes, None when it cannot be read, and the time of the reading."""

    size: int | None
    time: float


class UsageMeter:
    """Measures containers. Used by one thread at a time."""

    def __init__(self, reader: ProcessReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader, self._clock = reader, clock
        self._shared: dict[int, _SharedPages] = {}  # by pid
        self._members: dict[str, list[int]] = {}  # by run, at the last pass
        self._main_cpu: dict[int, float] = {}  # CPU time of the main process of each run, by pid, at the last pass

    def measure(
        self, inits: Mapping[str, int], device_memory: Mapping[int, int] = MappingProxyType({})
    ) -> tuple[float, dict[str, Measurement]]:
        """The time by the clock, and the containers (run -> pid of its init) as they are then, without those that have
        ended. `device_memory`: pid -> bytes on GPUs."""
        at = self._clock()
        table = self._reader.processes()
        pids_by_run = members(table, inits)
        self._read_shared_pages(table, pids_by_run)
        mains = {run: main_process(table, pids) for run, pids in pids_by_run.items()}
        waits = {run: self._wait(table, main) for run, main in mains.items() if main is not None}
        self._main_cpu = {main: table[main].cpu for main in mains.values() if main is not None}
        return at, {
            run: self._measurement(table, inits[run], pids)._replace(
                wait=waits.get(run, ""), device_memory=sum(device_memory.get(pid, 0) for pid in pids)
            )
            for run, pids in pids_by_run.items()
        }

    def members(self) -> dict[str, list[int]]:
        """The pids of each run at the last pass."""
        return self._members

    def _wait(self, table: ProcessTable, pid: int) -> str:
        """What a process waits for that has used no CPU since the last pass."""
        if table[pid].cpu - self._main_cpu.get(pid, -math.inf) > _LITTLE_CPU:
            return ""
        if table[pid].is_blocked:
            return f"{DISK} {pid}"
        return f"{SLEEP} {pid}" if self._reader.wait_channel(pid) in _SLEEPING else ""

    def _measurement(self, table: ProcessTable, init: int, pids: list[int]) -> Measurement:
        memory, is_proportional = 0, True
        for pid in pids:
            rss, shared = table[pid].rss, self._shared.get(pid)
            if rss and (shared is None or shared.size is None):
                is_proportional = False
            memory += max(0, rss - (shared.size or 0)) if shared else rss
        stopped_pid = next((pid for pid in pids if table[pid].is_stopped), 0)
        return Measurement(cpu_time(table, init, pids), memory, is_proportional, stopped_pid)

    def _read_shared_pages(self, table: ProcessTable, pids_by_run: dict[str, list[int]]) -> None:
        start = self._clock()
        due: list[tuple[float, int]] = []
        shared: dict[int, _SharedPages] = {}
        for run, pids in pids_by_run.items():
            changed = sorted(pids) != sorted(self._members.get(run, ()))
            for pid in pids:
                last = self._shared.get(pid)
                if last is not None:
                    shared[pid] = last
                if table[pid].rss and (last is None or changed or start - last.time >= PSS_INTERVAL):
                    due.append((-1.0 if last is None else last.time, pid))
        self._shared, self._members = shared, pids_by_run
        for _, pid in sorted(due):
            if self._clock() - start >= PSS_BUDGET:
                return
            pss = self._reader.pss(pid)
            shared[pid] = _SharedPages(None if pss is None else max(0, table[pid].rss - pss), start)


class _Run(msgspec.Struct):
    """A container that runs. `cpu` was accepted at the monotonic time `at`; it includes `lost`, the time of processes
    that nobody has waited for, which the kernel forgets (SIGCHLD ignored)."""

    init: int
    at: float
    cpu: float = 0.0
    lost: float = 0.0
    is_lower: bool = False  # the last measurement was lower than the one before
    peak: int = 0
    device_peak: int = 0
    sample: UsageSample | None = None

    def accept(self, measurement: Measurement, at: float, now: float, cpus: int) -> None:
        """Take over a measurement made at the monotonic time `at`, the Unix time `now`."""
        self.peak = max(self.peak, measurement.memory)
        self.device_peak = max(self.device_peak, measurement.device_memory)
        window = at - self.at
        if window < _SHORTEST_WINDOW:
            return
        used = measurement.cpu + self.lost - self.cpu
        if used < 0 and self.is_lower:  # for the second time: no process was missed, its time is lost
            self.lost, used = self.lost - used, 0.0
        self.is_lower = used < 0
        if 0 <= used <= window * cpus + _CPU_SLACK:
            self.cpu, self.at = measurement.cpu + self.lost, at
        else:
            used = 0.0 if self.sample is None else self.sample.cores * window
        cores, last = used / window, measurement
        self.sample = UsageSample(
            *(now, window, cores, self.cpu, last.memory, self.peak, last.is_proportional, last.stopped_pid, last.wait),
            *(last.device_memory, self.device_peak),
        )


class UsageSampler:
    """Samples the containers of a node. `now`: the Unix time."""

    def __init__(
        self,
        now: Callable[[], float] = time.time,
        reader: ProcessReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._clock = now, clock
        self._reader = reader or process_reader()
        self._meter = UsageMeter(self._reader, clock)
        self.progress = ProgressSampler(clock, now)
        self.device_memory: Callable[[], Mapping[int, int]] = dict  # pid -> bytes on GPUs
        self.device_use: Callable[[], Mapping[str, Mapping[str, float]]] = dict  # uid -> name in the metrics -> value
        # ProgressSampler.no_progress has changed, or a report is due
        self.on_progress: Callable[[str], object] = lambda uid: None
        self._runs: dict[str, _Run] = {}  # by run: uid/container/number
        self.stops = StopWatcher(self._meter.members, self._runs.__contains__)
        self._device_peaks: dict[str, int] = {}  # of ended runs that used a GPU, the last MAX_PEAKS
        self._has_runs = asyncio.Event()
        self._machine: tuple[float, MachineEntry] | None = None
        self._machine_sample: MachineSample | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        self.machine()  # the first reading, from which the first answer counts
        while True:
            await self._has_runs.wait()
            await asyncio.sleep(INTERVAL)
            await self.sample()

    async def sample(self) -> None:
        """Make one pass."""
        inits = {run: state.init for run, state in self._runs.items()}
        if not inits:
            return
        read_progress, device_memory = self.progress.read_all(self.device_use()), self.device_memory()
        look_for_life = self.progress.look_for_life()

        def read() -> tuple[float, dict[str, Measurement], list[str]]:
            at, measurements = self._meter.measure(inits, device_memory)
            read_progress()
            activities = {run: self._activity(run, measurement, at) for run, measurement in measurements.items()}
            return at, measurements, look_for_life(self._meter.members(), activities)

        at, measurements, changed = await asyncio.to_thread(read)
        for uid in dict.fromkeys((*changed, *self.progress.due_reports())):
            self.on_progress(uid)
        now = self._now() - (self._clock() - at)
        for run, measurement in measurements.items():
            if state := self._runs.get(run):  # it has not ended meanwhile
                state.accept(measurement, at, now, os.cpu_count() or 1)
        self.machine()  # so that the next answer is not the mean since the last question

    def _activity(self, run: str, measurement: Measurement, at: float) -> Activity:
        """What the processes of a run do. Called in another thread."""
        if measurement.stopped_pid:
            return "stopped"
        if measurement.wait:
            return "disk" if measurement.wait.startswith(DISK) else "sleep"
        if (state := self._runs.get(run)) is None:
            return ""
        used = measurement.cpu + state.lost - state.cpu
        return "computes" if used > IDLE_CORES * (at - state.at) else "waits"

    def container_started(self, run: str, init: int) -> None:
        """A container runs. `run`: uid/container/number; `init`: the pid of its init, 0 if unknown."""
        if init:
            self._runs[run] = _Run(init, self._clock())
            self._has_runs.set()

    def container_ended(self, run: str, max_rss: int) -> int:
        """A container has ended. `max_rss`: the largest resident size of one of its processes, 0 if unknown. Returns
        the peak of its memory in bytes, 0 if unknown."""
        state = self._runs.pop(run, None)
        self.progress.container_ended(run)
        self.stops.end(run)
        if state and state.device_peak:
            self._device_peaks[run] = state.device_peak
            if len(self._device_peaks) > MAX_PEAKS:
                del self._device_peaks[next(iter(self._device_peaks))]
        if not self._runs:
            self._has_runs.clear()
        return max(max_rss, state.peak if state else 0)

    def pods_by_pid(self) -> dict[int, str]:
        """The uid of the pod of each process that the last pass has seen."""
        return {pid: run.partition("/")[0] for run, pids in self._meter.members().items() for pid in pids}

    def device_peak(self, run: str) -> int:
        """The largest memory on GPUs of a run that has ended, in bytes; 0 if it used none, or if it is unknown."""
        return self._device_peaks.get(run, 0)

    def of_container(self, run: str) -> UsageSample | None:
        """The last sample of a container; None before the first and after its end."""
        state = self._runs.get(run)
        return state.sample if state else None

    def machine(self) -> MachineSample | None:
        """The usage of the machine since the last call, or the result of that call if it is too near. None at the first
        call, and where it cannot be read. Reads two small files."""
        at = self._clock()
        if self._machine is not None and at - self._machine[0] < _SHORTEST_WINDOW:
            return self._machine_sample
        try:
            machine = self._reader.machine()
        except (OSError, ValueError, IndexError):
            return None
        if self._machine is not None:
            window = at - self._machine[0]
            cores = max(0.0, machine.cpu - self._machine[1].cpu) / window
            self._machine_sample = MachineSample(self._now(), window, cores, machine.memory)
        self._machine = at, machine
        return self._machine_sample
