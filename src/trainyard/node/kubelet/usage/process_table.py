"""The processes of this machine, with their CPU time and memory: from /proc on Linux, from one `ps` elsewhere.

Rules:
- A pass over N processes reads N small files; nothing is started and nothing is installed for it.
- The CPU time of a process includes that of the children it has waited for, which no longer have an entry of their own.
- Resident memory (RSS) counts a page once for each process that maps it, the proportional set size (PSS) divides it
  among them. Only Linux has the latter, and reading it takes longer: the reader decides how often.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WAKEUP_BYTES = 8  # that one wakeup of a thread writes at most
_LONGEST_STAT = 1024  # bytes; /proc/PID/stat has about 350


class ProcessEntry(NamedTuple):
    """One process. CPU times in seconds; `reaped_cpu` is that of the children it has waited for. `rss` in bytes.
    `is_stopped`: by a signal (SIGSTOP, SIGTSTP). `is_blocked`: it waits in the kernel and cannot be interrupted, mostly
    for a disk or a network file system."""

    parent: int
    cpu: float
    reaped_cpu: float
    rss: int
    is_stopped: bool = False
    is_blocked: bool = False


class Written(NamedTuple):
    """What a process has written since its start: bytes and calls of write(2), and bytes that went to disks."""

    characters: int
    calls: int
    disk_bytes: int

    def wrote_since(self, before: Written) -> bool:
        """Whether it has written more than wakeups."""
        characters, calls = self.characters - before.characters, self.calls - before.calls
        return characters > _WAKEUP_BYTES * calls or self.disk_bytes > before.disk_bytes


NOTHING_WRITTEN = Written(0, 0, 0)


class MachineEntry(NamedTuple):
    """The whole machine: CPU time that was used since its start in seconds, memory in use in bytes."""

    cpu: float
    memory: int


ProcessTable = Mapping[int, ProcessEntry]  # by pid


class ProcessReader(Protocol):
    """Reads the processes of this machine. The methods may block for some milliseconds."""

    def processes(self) -> ProcessTable:
        """All processes that are visible to this user, also those that have ended and are not reaped."""

    def pss(self, pid: int) -> int | None:
        """The proportional set size of a process in bytes; None when it cannot be read."""

    def wait_channel(self, pid: int) -> str:
        """The function of the kernel in which the main thread of a process waits; "" when it does not, or cannot be
        read."""

    def machine(self) -> MachineEntry:
        """The CPU time and the memory of the whole machine. Raises OSError, ValueError."""


def process_reader() -> ProcessReader:
    """The reader for this operating system."""
    return LinuxReader() if sys.platform == "linux" else PsReader()


def parse_stat(stat: bytes) -> ProcessEntry:
    """The content of /proc/PID/stat. The name of the program, in parentheses, may contain any character. Raises
    ValueError, IndexError."""
    fields = stat[stat.rindex(b")") + 2 :].split()  # from the third field on, the state
    return ProcessEntry(
        int(fields[1]),
        (int(fields[11]) + int(fields[12])) * _TICK,
        (int(fields[13]) + int(fields[14])) * _TICK,
        int(fields[21]) * _PAGE,
        fields[0] == b"T",
        fields[0] == b"D",
    )


def parse_pss(smaps_rollup: bytes) -> int | None:
    """The field Pss of /proc/PID/smaps_rollup in bytes; None without one."""
    for line in smaps_rollup.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def parse_io(text: bytes) -> Written:
    """The content of /proc/PID/io. Raises KeyError, ValueError."""
    fields = dict(line.split(b": ", 1) for line in text.splitlines())
    return Written(int(fields[b"wchar"]), int(fields[b"syscw"]), int(fields[b"write_bytes"]))


def read_io(pid: int) -> Written:
    """What the process has written. Raises OSError, KeyError, ValueError: it has ended, or is somebody else's."""
    return parse_io(_read(f"/proc/{pid}/io"))


def parse_machine(stat: bytes, meminfo: bytes) -> MachineEntry:
    """From /proc/stat and /proc/meminfo. Memory that the kernel could free at once, such as cached files, is not in
    use. Raises ValueError, IndexError."""
    user, nice, system, _, _, irq, softirq, *steal = (int(field) for field in stat.split(b"\n", 1)[0].split()[1:9])
    sizes = {
        line.partition(b":")[0]: int(line.split()[1]) * 1024
        for line in meminfo.splitlines()
        if line.startswith((b"MemTotal:", b"MemFree:", b"MemAvailable:"))
    }
    free = sizes.get(b"MemAvailable", sizes.get(b"MemFree", 0))
    ticks = user + nice + system + irq + softirq + sum(steal[:1])
    return MachineEntry(ticks * _TICK, sizes.get(b"MemTotal", free) - free)


def parse_ps(listing: bytes) -> dict[int, ProcessEntry]:
    """The output of `ps -axo pid=,ppid=,rss=,time=`; RSS in KiB, time as [[days-]hours:]minutes:seconds. Lines that
    cannot be parsed are left out."""
    table: dict[int, ProcessEntry] = {}
    for line in listing.decode("ascii", "replace").splitlines():
        try:
            pid, parent, rss, used = line.split()[:4]
            table[int(pid)] = ProcessEntry(int(parent), _ps_seconds(used), 0.0, int(rss) * 1024)
        except ValueError:
            continue
    return table


def _ps_seconds(text: str) -> float:
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86400


def members(table: ProcessTable, inits: Mapping[str, int]) -> dict[str, list[int]]:
    """The pids below each init (container run -> pid of its init); inits that have ended have no entry."""
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    pids_by_run: dict[str, list[int]] = {}
    for run, init in inits.items():
        if init in table:
            pids_by_run[run] = below = list(children.get(init, ()))
            for pid in below:
                below += children.get(pid, ())
    return pids_by_run


def main_process(table: ProcessTable, pids: list[int]) -> int | None:
    """The process that works, of those below an init with their parents first: the child that has used most CPU, as
    long as it has used half as much as its parent. A launcher or a shell is none. None without processes."""
    below = set(pids)
    children: dict[int, list[int]] = {}
    for pid in pids:
        children.setdefault(table[pid].parent, []).append(pid)
    main = max((pid for pid in pids if table[pid].parent not in below), key=lambda pid: table[pid].cpu, default=None)
    while main is not None and main in children:
        child = max(children[main], key=lambda pid: table[pid].cpu)
        if table[child].cpu < table[main].cpu / 2:
            break
        main = child
    return main


def cpu_time(table: ProcessTable, init: int, pids: Iterable[int]) -> float:
    """The CPU time in seconds of the processes below an init since its start, without that of the init itself.

    A process that ends moves its time to the parent that waits for it, so the sum stays."""
    total = table[init].reaped_cpu
    for pid in pids:
        entry = table[pid]
        total += entry.cpu + entry.reaped_cpu
    return total


class LinuxReader:
    """Reads /proc."""

    def processes(self) -> dict[int, ProcessEntry]:
        """See ProcessReader."""
        table: dict[int, ProcessEntry] = {}
        for name in os.listdir("/proc"):
            if name[0] in "123456789":
                try:
                    # Without a file object: they take twice as long, and there are thousands of these reads.
                    fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                    try:
                        table[int(name)] = parse_stat(os.read(fd, _LONGEST_STAT))
                    finally:
                        os.close(fd)
                except (OSError, ValueError, IndexError):  # it has ended
                    continue
        return table

    def pss(self, pid: int) -> int | None:
        """See ProcessReader."""
        try:
            return parse_pss(_read(f"/proc/{pid}/smaps_rollup"))
        except OSError:
            return None

    def wait_channel(self, pid: int) -> str:
        """See ProcessReader."""
        try:
            return _read(f"/proc/{pid}/wchan").decode("ascii", "replace").strip("0")
        except OSError:
            return ""

    def machine(self) -> MachineEntry:
        """See ProcessReader."""
        return parse_machine(_read("/proc/stat"), _read("/proc/meminfo"))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class PsReader:
    """Runs `ps`, where there is no /proc (macOS). `ps` has no time of ended children: it is kept here, as of the last
    listing before their end."""

    def __init__(self) -> None:
        self._listed_at = -math.inf  # monotonic time of the last listing
        self._last: dict[int, ProcessEntry] = {}
        self._reaped: dict[int, float] = {}  # pid -> time of its ended children

    def processes(self) -> dict[int, ProcessEntry]:
        """See ProcessReader."""
        listing = subprocess.run(["ps", "-axo", "pid=,ppid=,rss=,time="], capture_output=True, check=False).stdout
        self._listed_at = time.monotonic()
        return self.with_ended(parse_ps(listing))

    def with_ended(self, table: dict[int, ProcessEntry]) -> dict[int, ProcessEntry]:
        """The table with the time of the processes that have ended since the last table, at their nearest ancestor that
        has not."""
        for pid, entry in self._last.items():
            if pid not in table:
                parent = entry.parent
                while parent not in table and parent in self._last:
                    parent = self._last[parent].parent
                ended_cpu = entry.cpu + self._reaped.pop(pid, 0.0)
                self._reaped[parent] = self._reaped.get(parent, 0.0) + ended_cpu
        self._reaped = {pid: seconds for pid, seconds in self._reaped.items() if pid in table}
        self._last = table
        return {pid: entry._replace(reaped_cpu=self._reaped.get(pid, 0.0)) for pid, entry in table.items()}

    def pss(self, pid: int) -> int | None:
        """See ProcessReader."""
        return None

    def wait_channel(self, pid: int) -> str:
        """See ProcessReader."""
        return ""

    def machine(self) -> MachineEntry:
        """See ProcessReader. The sum over all processes of the last listing, if it is not older than a second."""
        if time.monotonic() - self._listed_at > 1:
            self.processes()
        entries = self._last.values()
        return MachineEntry(sum(entry.cpu for entry in entries), sum(entry.rss for entry in entries))
