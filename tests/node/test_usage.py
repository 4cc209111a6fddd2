"""The usage of containers: rates, peaks, the bounds on what a pass reads; and stories with real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import trainyard
from tests.node.node_cluster import NodeCluster, waiting
from tests.support.waiting import until_async
from trainyard.node.kubelet.usage import usage
from trainyard.node.kubelet.usage.process_table import MachineEntry, ProcessEntry
from trainyard.node.kubelet.usage.usage import Measurement, UsageMeter, UsageSampler, _Run
from trainyard.objects import Json
from trainyard.objects.usage import PodUsage, peaks_of

pytestmark = pytest.mark.slow

MIB = 1 << 20


class RecordedReader:
    """A reader whose answers are set by the test."""

    def __init__(self, table: Mapping[int, ProcessEntry], pss: Mapping[int, int | None]) -> None:
        self.table, self.sizes, self.read_pss = dict(table), dict(pss), list[int]()
        self.machines: Iterator[MachineEntry] = iter(())
        self.channels: dict[int, str] = {}

    def processes(self) -> Mapping[int, ProcessEntry]:
        return self.table

    def pss(self, pid: int) -> int | None:
        self.read_pss.append(pid)
        return self.sizes.get(pid)

    def wait_channel(self, pid: int) -> str:
        return self.channels.get(pid, "")

    def machine(self) -> MachineEntry:
        return next(self.machines, MachineEntry(0.0, 0))


INIT = ProcessEntry(1, 9.0, 0.0, 20 * MIB)


def two_workers() -> RecordedReader:
    """Two processes of 100 MiB that share 60 MiB."""
    table = {10: INIT, 11: ProcessEntry(10, 1.0, 0.0, 100 * MIB), 12: ProcessEntry(10, 1.0, 0.0, 100 * MIB)}
    return RecordedReader(table, {11: 70 * MIB, 12: 70 * MIB})


def test_pages_that_processes_share_count_once() -> None:
    assert UsageMeter(two_workers(), lambda: 0.0).measure({"a": 10})[1] == {"a": Measurement(2.0, 140 * MIB, True)}


def test_rss_counts_where_the_proportional_size_cannot_be_read() -> None:
    reader = two_workers()
    reader.sizes[12] = None
    assert UsageMeter(reader, lambda: 0.0).measure({"a": 10})[1] == {"a": Measurement(2.0, 170 * MIB, False)}


def test_new_pages_count_before_the_proportional_size_is_read_again() -> None:
    reader = two_workers()
    meter = UsageMeter(reader, lambda: 0.0)
    meter.measure({"a": 10})
    reader.table[11] = reader.table[11]._replace(rss=300 * MIB)
    assert meter.measure({"a": 10})[1]["a"].memory == 340 * MIB
    assert reader.read_pss == [11, 12]


def test_the_proportional_size_is_read_every_ten_seconds_and_when_the_processes_change() -> None:
    reader, times = two_workers(), [0.0]
    meter = UsageMeter(reader, lambda: times[0])
    for times[0] in (0.0, 2.0, 8.0):
        meter.measure({"a": 10})
    assert reader.read_pss == [11, 12]
    times[0] = 10.0
    meter.measure({"a": 10})
    assert reader.read_pss == [11, 12] * 2
    del reader.table[12]
    reader.sizes[11] = 100 * MIB
    times[0] = 12.0
    assert meter.measure({"a": 10})[1]["a"].memory == 100 * MIB


def test_a_pass_ends_reading_proportional_sizes_after_its_budget_and_goes_on_in_the_next() -> None:
    """However many processes there are, and however large: the rest counts with its RSS meanwhile."""
    table = {10: INIT} | {pid: ProcessEntry(10, 0.0, 0.0, MIB) for pid in range(11, 61)}
    reader = RecordedReader(table, dict.fromkeys(table, MIB))
    seconds = [0.0]

    def tick() -> float:
        seconds[0] += usage.PSS_BUDGET / 10
        return seconds[0]

    meter = UsageMeter(reader, tick)
    assert not meter.measure({"a": 10})[1]["a"].is_proportional
    assert len(reader.read_pss) == 9
    for _ in range(9):
        last = meter.measure({"a": 10})[1]
    assert last["a"].is_proportional and sorted(set(reader.read_pss)) == list(range(11, 61))


def test_a_process_waits_that_has_used_no_cpu_since_the_last_pass() -> None:
    reader = two_workers()
    meter = UsageMeter(reader, lambda: 0.0)

    def wait(cpu: float, channel: str, *, is_blocked: bool = False) -> str:
        reader.table[11] = reader.table[11]._replace(cpu=cpu, is_blocked=is_blocked)
        reader.channels[11] = channel
        return meter.measure({"a": 10})[1]["a"].wait

    assert wait(2.0, "hrtimer_nanosleep") == ""
    assert wait(2.0, "hrtimer_nanosleep") == "sleep 11"
    assert wait(3.0, "hrtimer_nanosleep") == ""  # it works, and sleeps now and then
    assert wait(3.0, "futex_do_wait") == ""
    assert wait(3.0, "", is_blocked=True) == "disk 11"


def run_of(*measurements: tuple[float, float]) -> _Run:
    """A container with these (monotonic time, CPU time), on a machine with two processors; it began at 0."""
    run = _Run(10, 0.0)
    for at, cpu in measurements:
        run.accept(Measurement(cpu, MIB, True), at, 1000.0 + at, 2)
    return run


@pytest.mark.parametrize(
    ("measurements", "cores", "window", "cpu"),
    [
        (((2.0, 1.5),), 0.75, 2.0, 1.5),  # from its start
        (((2.0, 1.5), (4.0, 3.5)), 1.0, 2.0, 3.5),
        (((2.0, 1.0), (4.0, 1.0)), 0.0, 2.0, 1.0),
        (((2.0, 2.0), (4.0, 1.0)), 1.0, 2.0, 2.0),  # a process was missed: the rate stays
        (((2.0, 2.0), (4.0, 1.0), (6.0, 6.0)), 1.0, 4.0, 6.0),
        (((2.0, 2.0), (4.0, 1.0), (6.0, 1.0)), 0.0, 4.0, 2.0),  # the time of a process is lost
        (((2.0, 2.0), (4.0, 1.0), (6.0, 1.0), (8.0, 2.0)), 0.5, 2.0, 3.0),
        (((2.0, 2.0), (4.0, 90.0)), 1.0, 2.0, 2.0),  # a process was counted twice
        (((2.0, 2.0), (4.0, 90.0), (6.0, 5.0)), 0.75, 4.0, 5.0),
    ],
)
def test_rates_and_a_cpu_time_that_never_runs_backwards(
    measurements: tuple[tuple[float, float], ...], cores: float, window: float, cpu: float
) -> None:
    sample = run_of(*measurements).sample
    assert sample is not None
    assert (sample.cores, sample.window, sample.cpu) == (pytest.approx(cores), window, cpu)
    assert sample.time == 1000.0 + measurements[-1][0]


def test_there_is_no_rate_over_less_than_a_second() -> None:
    assert run_of((0.5, 0.4)).sample is None


async def test_a_peak_stays_and_the_largest_process_may_be_larger() -> None:
    reader = two_workers()
    times = [0.0]
    sampler = UsageSampler(lambda: 1000.0, reader, lambda: times[0])
    sampler.container_started("u/a/1", 10)
    for times[0], rss in ((2.0, 500), (4.0, 100)):
        reader.table[11], reader.sizes[11] = reader.table[11]._replace(rss=rss * MIB), (rss - 30) * MIB
        await sampler.sample()
    sample = sampler.of_container("u/a/1")
    assert sample is not None and (sample.memory, sample.peak) == (140 * MIB, 540 * MIB)
    assert sampler.container_ended("u/a/1", 600 * MIB) == 600 * MIB
    assert sampler.container_ended("u/never/1", 7) == 7 and sampler.of_container("u/a/1") is None


async def test_nothing_is_read_while_no_container_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL", 0.01)
    passes, reader = asyncio.Event(), two_workers()
    reader.machines = iter([MachineEntry(0.0, 0)])

    def processes() -> Mapping[int, ProcessEntry]:
        passes.set()
        return reader.table

    reader.processes = processes  # type: ignore[method-assign]
    sampler = UsageSampler(reader=reader)
    task = asyncio.create_task(sampler.run())
    await asyncio.sleep(0.1)
    assert not passes.is_set()
    sampler.container_started("u/a/1", 10)
    await asyncio.wait_for(passes.wait(), 5)
    sampler.container_ended("u/a/1", 0)
    await asyncio.sleep(0.05)
    passes.clear()
    await asyncio.sleep(0.1)
    assert not passes.is_set()
    task.cancel()


def test_the_machine_is_measured_between_two_requests() -> None:
    reader, times = two_workers(), [0.0]
    reader.machines = iter([MachineEntry(100.0, 5), MachineEntry(103.0, 7)])
    sampler = UsageSampler(lambda: 1000.0, reader, lambda: times[0])
    assert sampler.machine() is None
    times[0] = 0.5
    assert sampler.machine() is None  # too near
    times[0] = 2.0
    sample = sampler.machine()
    assert sample is not None and (sample.cores, sample.window, sample.memory) == (1.5, 2.0, 7)
    times[0] = 2.5
    assert sampler.machine() == sample


# --- with real processes

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
READY = "print('ready', flush=True)"


async def sampled(cluster: NodeCluster, name: str) -> PodUsage:
    """The usage of the pod after one pass more."""
    assert cluster.node._context is not None
    await asyncio.sleep(usage._SHORTEST_WINDOW)
    await cluster.node._context.usage.sample()
    return next(pod for pod in cluster.node.usage().pods if pod.name == name)


BUSY = """
import time
times = open("times", "w", buffering=1)
while True:
    end = time.monotonic() + 0.02
    while time.monotonic() < end: pass
    print(time.time(), time.process_time(), file=times)
"""


@on_linux
async def test_a_busy_loop_reads_what_the_kernel_gave_it_and_that_is_a_core_where_a_core_is_free(
    cluster: NodeCluster,
) -> None:
    """1000m, unless another program of this machine has the processors: so its own CPU time is compared, +- 10 %."""
    folder = cluster.node._state
    await cluster.pod("busy", BUSY, container={"workingDir": str(folder)})
    await cluster.phase("busy", "Running")
    await sampled(cluster, "busy")  # the window of the first begins when the node hears of the start
    await asyncio.sleep(1)
    usage = await sampled(cluster, "busy")
    times = [[float(word) for word in line.split()] for line in (folder / "times").read_text().splitlines()[:-1]]
    inside = [pair for pair in times if usage.time - usage.window <= pair[0] <= usage.time]
    given = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
    assert usage.containers[0].cores == pytest.approx(given, rel=0.1, abs=0.03)


@on_linux
async def test_the_time_of_children_that_a_program_has_waited_for_counts(cluster: NodeCluster) -> None:
    script = (
        "import os, subprocess, sys\n"
        "busy = 'import time\\nend = time.process_time() + 0.2\\nwhile time.process_time() < end: pass'\n"
        "for _ in range(5): subprocess.run([sys.executable, '-c', busy])\n"
        "print(sum(os.times()[:4]), flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    await cluster.pod("parent", script)
    await cluster.phase("parent", "Running")
    await printed(cluster, "parent", "\n")
    await sampled(cluster, "parent")
    assert cluster.node._context is not None
    run = next(iter(cluster.node._context.usage._runs))
    sample = cluster.node._context.usage.of_container(run)
    own = float(await cluster.logs("parent"))
    assert sample is not None and own > 1 and sample.cpu == pytest.approx(own, abs=0.15)


@on_linux
async def test_an_allocation_is_read_and_its_peak_stays_after_it_is_freed(cluster: NodeCluster) -> None:
    script = (
        "import sys, time, pathlib\n"
        "data = b'x' * (200 << 20)\n"
        "print('allocated', flush=True)\n"
        "while not pathlib.Path('free').exists(): time.sleep(0.05)\n"
        "del data\n"
        "print('freed', flush=True)\n"
        "while not pathlib.Path('end').exists(): time.sleep(0.05)\n"
    )
    folder = cluster.node._state
    await cluster.pod("large", script, container={"workingDir": str(folder)})
    await cluster.phase("large", "Running")
    await printed(cluster, "large", "allocated")
    (container,) = (await sampled(cluster, "large")).containers
    assert 200 * MIB <= container.memory <= 225 * MIB
    (folder / "free").touch()
    await printed(cluster, "large", "freed")
    (container,) = (await sampled(cluster, "large")).containers
    assert container.memory < 30 * MIB and 200 * MIB <= container.peak <= 225 * MIB
    (folder / "end").touch()
    pod = await cluster.phase("large", "Succeeded")
    (run, peak), *_ = peaks_of(pod["metadata"]["annotations"]).items()
    assert run == "main/1" and 200 * MIB <= peak <= 225 * MIB


async def printed(cluster: NodeCluster, name: str, text: str) -> None:
    await until_async(lambda: cluster.logs(name), f"{name} has printed {text!r}", accept=lambda log: text in log)


async def test_the_peak_of_a_program_that_no_pass_has_seen_is_known(cluster: NodeCluster) -> None:
    await cluster.pod("short", "data = b'x' * (150 << 20)")
    pod = await cluster.phase("short", "Succeeded")
    assert 150 * MIB <= peaks_of(pod["metadata"]["annotations"])["main/1"] <= 180 * MIB


async def test_the_peaks_of_both_runs_of_a_restarted_container(cluster: NodeCluster) -> None:
    await cluster.pod("again", "data = b'x' * (100 << 20); raise SystemExit(3)", restartPolicy="OnFailure")

    def failed_twice(status: Json) -> bool:
        return (
            waiting(status).get("reason") == "CrashLoopBackOff" and status["containerStatuses"][0]["restartCount"] == 1
        )

    pod = await cluster.until("again", failed_twice)
    assert peaks_of(pod["metadata"]["annotations"]).keys() == {"main/1", "main/2"}


async def test_the_steps_that_a_program_reports_in_its_file_or_prints(cluster: NodeCluster) -> None:
    report = """
import itertools, time, trainyard
for step in itertools.count(1):
    trainyard.report(step=step, loss=1 / step)
    time.sleep(0.02)
"""
    prints = "import itertools, time\nfor n in itertools.count(1): print(f'step={n} loss=0.5'); time.sleep(0.02)"
    source = str(Path(trainyard.__file__).parents[1])
    await cluster.pod("reports", report, container={"env": [{"name": "PYTHONPATH", "value": source}]})
    await cluster.pod("prints", prints)
    for name, source in (("reports", "file"), ("prints", "pattern")):
        await cluster.phase(name, "Running")
        await sampled(cluster, name)
        progress = (await sampled(cluster, name)).progress
        assert progress is not None and progress.source == source
        assert progress.values["step"] > 5 and progress.values["loss"] <= 0.5
        assert progress.steps_per_second is not None and 1 < progress.steps_per_second < 51


def test_a_report_does_nothing_without_a_file_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRAINYARD_METRICS", raising=False)
    trainyard.report(step=1)
    monkeypatch.setenv("TRAINYARD_METRICS", str(tmp_path / "none" / "file"))
    trainyard.report(step=1)
    monkeypatch.setenv("TRAINYARD_METRICS", str(tmp_path / "file"))
    trainyard.report(step=1, loss=0.5)
    trainyard.report(step=2)
    assert (tmp_path / "file").read_text() == '{"step": 1.0, "loss": 0.5}\n{"step": 2.0}\n'
