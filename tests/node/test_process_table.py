"""Lines of /proc and of `ps`, and the sums over process trees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until
from trainyard.node.kubelet.usage.process_table import (
    LinuxReader,
    ProcessEntry,
    PsReader,
    cpu_time,
    main_process,
    members,
    parse_machine,
    parse_ps,
    parse_pss,
    parse_stat,
)

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
TAIL = b"S 41 5 5 0 -1 4194560 1 2 3 4 700 50 20 5 20 0 9 0 12345 8888888 600 184467 1 1 0 0 0 0 0 0"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="has no /proc")


@pytest.mark.parametrize("name", [b"python", b"a b", b"x) S 1 2 3 (y", b")", b"(((", b"\xff\n"])
def test_a_line_of_proc_stat_with_any_name(name: bytes) -> None:
    entry = parse_stat(b"42 (" + name + b") " + TAIL + b"\n")
    assert entry == pytest.approx((41, 750 / TICKS, 25 / TICKS, 600 * PAGE, False, False))


@pytest.mark.parametrize(("state", "is_stopped"), [(b"T", True), (b"t", False), (b"D", False), (b"Z", False)])
def test_a_process_that_a_signal_has_stopped(state: bytes, is_stopped: bool) -> None:
    """Not one that a debugger traces."""
    entry = parse_stat(b"42 (python) " + state + TAIL[1:])
    assert (entry.is_stopped, entry.is_blocked) == (is_stopped, state == b"D")


@pytest.mark.parametrize(
    ("processes", "main"),
    [
        ({}, None),
        ({11: (10, 3.0)}, 11),
        ({11: (10, 0.01), 12: (11, 5.0)}, 12),  # a shell
        ({11: (10, 5.0), 12: (11, 4.0), 13: (11, 6.0)}, 13),  # torchrun, which imports torch, too
        ({11: (10, 90.0), 12: (11, 30.0), 13: (11, 30.0)}, 11),  # with loaders
        ({11: (10, 0.0), 12: (10, 2.0)}, 12),
    ],
)
def test_the_main_process(processes: dict[int, tuple[int, float]], main: int | None) -> None:
    table = {10: ProcessEntry(1, 9.0, 0.0, 0)} | {
        pid: ProcessEntry(parent, cpu, 0.0, 0) for pid, (parent, cpu) in processes.items()
    }
    assert main_process(table, members(table, {"a": 10})["a"]) == main


@on_linux
def test_where_a_process_sleeps() -> None:
    reader = LinuxReader()
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            until(lambda: reader.wait_channel(process.pid) == "hrtimer_nanosleep", "it sleeps")
        finally:
            process.kill()
    assert reader.wait_channel(process.pid) == ""


@pytest.mark.parametrize("stat", [b"", b"42 (python", b"42 (python) S", b"42 (python) S 1 2", b"x"])
def test_a_line_that_is_cut_off_is_an_error_that_the_reader_expects(stat: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(stat)


@pytest.mark.parametrize(
    ("rollup", "size"),
    [
        (b"Rss:   2000 kB\nPss:   1500 kB\nPss_Anon:  700 kB\n", 1500 * 1024),
        (b"Rss: 2000 kB\nPss_Anon: 700 kB\n", None),
        (b"", None),
    ],
)
def test_the_proportional_size(rollup: bytes, size: int | None) -> None:
    assert parse_pss(rollup) == size


@pytest.mark.parametrize(
    ("stat", "meminfo", "entry"),
    [
        (
            b"cpu  100 20 30 5000 7 1 2 3 50 0\ncpu0 1 1 1 1\n",
            b"MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n",
            (156, 600),
        ),
        (b"cpu  100 20 30 5000 7 1 2\n", b"MemTotal: 1000 kB\nMemFree: 100 kB\n", (153, 900)),
    ],
)
def test_the_machine_without_idle_time_and_without_memory_that_could_be_freed(
    stat: bytes, meminfo: bytes, entry: tuple[int, int]
) -> None:
    assert parse_machine(stat, meminfo) == pytest.approx((entry[0] / TICKS, entry[1] * 1024))


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (b"  501     1   2048   0:01.50", (1, 1.5, 2048)),
        (b"  501     1   2048 123:04.05", (1, 7384.05, 2048)),
        (b"  501     1   2048 02:03:04", (1, 7384.0, 2048)),
        (b"  501     1   2048 1-02:03:04", (1, 93784.0, 2048)),
    ],
)
def test_a_line_of_ps(line: bytes, entry: tuple[int, float, int]) -> None:
    assert parse_ps(line + b"\n\nnonsense\n") == {501: ProcessEntry(entry[0], entry[1], 0.0, entry[2] * 1024)}


TABLE = {
    10: ProcessEntry(1, 100.0, 4.0, 50),  # the init of "a": its own time does not count
    11: ProcessEntry(10, 2.0, 1.0, 7),
    12: ProcessEntry(11, 3.0, 0.0, 8),
    20: ProcessEntry(1, 100.0, 0.5, 50),
    21: ProcessEntry(20, 0.25, 0.0, 9),
    30: ProcessEntry(1, 9.0, 9.0, 9),
}


def test_the_members_of_containers_are_the_descendants_of_their_inits() -> None:
    assert members(TABLE, {"a": 10, "b": 20, "gone": 99}) == {"a": [11, 12], "b": [21]}


def test_cpu_time_counts_the_tree_and_what_was_reaped_in_it() -> None:
    assert cpu_time(TABLE, 10, [11, 12]) == 10.0


def test_cpu_time_stays_when_a_process_is_reaped_by_its_parent() -> None:
    after = {pid: entry for pid, entry in TABLE.items() if pid != 12}
    after[11] = after[11]._replace(reaped_cpu=1.0 + 3.0)
    assert cpu_time(after, 10, [11]) == cpu_time(TABLE, 10, [11, 12])


def test_the_time_of_processes_that_ps_shows_no_more_stays_with_their_nearest_ancestor() -> None:
    reader = PsReader()
    first = {10: ProcessEntry(1, 0.0, 0.0, 1), 11: ProcessEntry(10, 2.0, 0.0, 1), 12: ProcessEntry(11, 3.0, 0.0, 1)}
    assert cpu_time(reader.with_ended(first), 10, [11, 12]) == 5.0
    second = {10: first[10], 11: ProcessEntry(10, 2.5, 0.0, 1)}
    assert cpu_time(reader.with_ended(second), 10, [11]) == 5.5
    assert cpu_time(reader.with_ended({10: first[10]}), 10, []) == 5.5
    assert cpu_time(reader.with_ended({10: first[10]}), 10, []) == 5.5


@on_linux
def test_this_process_in_its_own_table() -> None:
    reader = LinuxReader()
    entry = reader.processes()[os.getpid()]
    assert entry.parent == os.getppid() and 0 < entry.rss < 1 << 34 and entry.cpu > 0
    pss = reader.pss(os.getpid())
    assert pss is None or 0 < pss <= entry.rss * 2
    machine = reader.machine()
    assert machine.cpu > entry.cpu and machine.memory > 0


@on_linux
def test_a_pass_opens_one_file_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 processes at 2 s are to cost at most 1 % of a core: 14 us for each, what one small file costs."""
    opened: list[str] = []

    def count(path: str, flags: int) -> int:
        opened.append(path)
        return real(path, flags)

    real = os.open
    monkeypatch.setattr(os, "open", count)
    table = LinuxReader().processes()
    assert len(opened) == len(set(opened)) and len(table) <= len(opened) <= len(table) + 20
    assert all(Path(path).name == "stat" for path in opened)


@pytest.mark.skipif(subprocess.call(["sh", "-c", "command -v ps >/dev/null"]) != 0, reason="has no ps")
def test_ps_of_this_machine_is_understood() -> None:
    """With the options that macOS has, too."""
    reader = PsReader()
    assert reader.processes()[os.getpid()].parent == os.getppid()
    assert reader.machine().memory > 1 << 20
