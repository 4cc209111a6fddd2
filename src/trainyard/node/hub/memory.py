"""Memory limits of containers: a memory cgroup for each where one can be made, else the sum of what its processes have.

Rules:
- Only the container's own programs count; its init stays outside of the cgroup. With the first program that the kernel
  kills for want of memory the whole container ends, as a kubelet has it (`memory.oom.group`).
- A cgroup is made below the one that the hub is in or, where that may have none below it (version 2), beside it.
- Its name has the pid of the hub's watcher. The hub removes a container's cgroup at its end, the watcher those of its
  hub, and every start those whose watcher is gone: after `kill -9` of all of them nothing else could."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass

from . import calls, reaper  # relative: this program runs without its package, see the package's docstring

V1, V2, SAMPLING, NONE = "cgroup v1", "cgroup v2", "sampling", "none"
LOOK_EVERY = 0.2  # seconds between two looks at a container that has a limit
_PREFIX = "trainyard-"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIMITS = {V1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), V2: ("memory.max",)}
_COUNTER = {V1: "memory.oom_control", V2: "memory.events"}


def mechanism() -> str:
    """How memory limits are enforced on this machine, for this user: "cgroup v2", "cgroup v1", "sampling", or "none"
    where there is no /proc to look at."""
    return _home()[0]


@dataclass(frozen=True, slots=True)
class Group:
    """A container's cgroup: its folder, and open files of it, because a container may see another /sys."""

    folder: str
    procs: int
    counter: int

    def enter(self) -> None:
        """This process, and all it starts."""
        os.write(self.procs, b"0")

    def kills(self) -> int:
        """How many processes the kernel has killed because of the limit."""
        for line in os.pread(self.counter, 4096, 0).splitlines():
            name, _, number = line.partition(b" ")
            if name == b"oom_kill":
                return int(number)
        return 0

    def close(self) -> None:
        os.close(self.procs)
        os.close(self.counter)


@dataclass(frozen=True, slots=True)
class Limit:
    """What an init knows of its container's limit. Without a group it looks for itself."""

    size: int
    group: Group | None

    def enter(self) -> None:
        if self.group:
            self.group.enter()

    def exceeded(self) -> bool:
        """To be asked by the init of the container."""
        if self.group:
            return self.group.kills() > 0
        # The init's own pid as /proc has it, which may be that of another pid namespace.
        below = reaper.descendants(int(os.readlink("/proc/self")))
        return sum(map(_resident, below)) > self.size and sum(map(_charged, below)) > self.size


class Groups:
    """The cgroups of one hub, whose watcher has that pid."""

    def __init__(self, watcher: int) -> None:
        self._watcher = watcher
        self._version = self._parent = ""
        self._count = 0
        self._left: list[str] = []  # those that the kernel did not let go yet

    def limit(self, size: int) -> Limit | None:
        """A limit of so many bytes for a new container; None for 0."""
        if not size:
            return None
        if not self._version:
            self._version, self._parent = _home()
        if self._version == NONE:
            return None
        return Limit(size, self._make(size) if self._parent else None)

    def _make(self, size: int) -> Group | None:
        self._count += 1
        folder = os.path.join(self._parent, f"{_PREFIX}{self._watcher}-{self._count}")
        try:
            os.mkdir(folder)
            _restrict(self._version, folder, size)
            procs = os.open(f"{folder}/cgroup.procs", os.O_WRONLY)
            return Group(folder, procs, os.open(f"{folder}/{_COUNTER[self._version]}", os.O_RDONLY))
        except OSError:
            self._left.append(folder)
            return None

    def remove(self, limit: Limit | None) -> None:
        """The container has ended. A cgroup may be busy for a moment longer: then it is removed with a later one."""
        if limit and limit.group:
            limit.group.close()
            self._left.append(limit.group.folder)
        self._left = [folder for folder in self._left if not _removed(folder)]


def sweep(own: int = 0) -> None:
    """Remove the empty cgroups of watchers that are gone, and those of the watcher `own`."""
    for parent in (*_own(V2), *_own(V1)):
        with contextlib.suppress(OSError):
            for name in os.listdir(parent):
                watcher = name.removeprefix(_PREFIX).partition("-")[0]
                if not name.startswith(_PREFIX) or not watcher.isdigit():
                    continue
                if int(watcher) == own or not os.path.exists(f"/proc/{watcher}"):
                    _removed(f"{parent}/{name}")


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _restrict(version: str, folder: str, size: int) -> None:
    for name in _LIMITS[version]:
        if name == _LIMITS[version][0] or os.path.exists(f"{folder}/{name}"):  # where swap is not counted there is none
            calls.write(f"{folder}/{name}", str(size))
    if version == V2:
        with contextlib.suppress(OSError):
            calls.write(f"{folder}/memory.swap.max", "0")
        with contextlib.suppress(OSError):
            calls.write(f"{folder}/memory.oom.group", "1")


def _home() -> tuple[str, str]:
    """The mechanism, and the cgroup in which those of containers are made. Proven: a program has been put into one."""
    if not os.path.exists("/proc/self/cgroup"):
        return NONE, ""
    for version in (V2, V1):
        for parent in _own(version):
            if os.access(parent, os.W_OK) and _works(version, parent):
                return version, parent
    return SAMPLING, ""


def _works(version: str, parent: str) -> bool:
    folder = f"{parent}/{_PREFIX}{os.readlink('/proc/self')}-probe"
    try:
        os.makedirs(folder, exist_ok=True)
        _restrict(version, folder, 1 << 30)
        os.close(os.open(f"{folder}/{_COUNTER[version]}", os.O_RDONLY))
        argv = ["/bin/sh", "-c", 'echo 0 > "$0"/cgroup.procs', folder]
        return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False
    finally:
        _removed(folder)


def _own(version: str) -> list[str]:
    """The folders of our own cgroup of that version and, nearest first, of those above it."""
    own = ""
    for line in _read("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (version == V2 and line.startswith("0::")) or (version == V1 and "memory" in names.split(",")):
            own = path
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        root, top = before.split(" ")[3:5]
        controllers = options.split(" ")[-1].split(",")
        if own and (kind == "cgroup2" if version == V2 else kind == "cgroup" and "memory" in controllers):
            inside = os.path.relpath(own, root)
            folder = top if inside == "." or inside.startswith("..") else f"{top}/{inside}"
            found = [folder]
            while folder != top:
                folder = os.path.dirname(folder)
                found.append(folder)
            return [one for one in found if os.path.isdir(one)]
    return []


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _resident(pid: int) -> int:
    """All that a process has in memory, what it shares with others included."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * _PAGE if len(words) > 1 else 0


def _charged(pid: int) -> int:
    """Its share of what cannot be written back to a file: what a cgroup could not give up either."""
    size, known = 0, False
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            size, known = size + int(line.split()[1]) * 1024, True
    return size if known else _resident(pid)
