"""Memory limits of containers: a memory cgroup for each container where possible, else the sum over its processes.

Rules:
- Only the container's programs count; its init stays outside of the cgroup. When the kernel OOM kills one program, the
  whole container ends, as with a kubelet (`memory.oom.group`).
- A cgroup is created below that of the supervisor or, where that may have no child (version 2), below an ancestor of
  it.
- Its name has the pid of the supervisor's watcher. The supervisor removes a container's cgroup at the container's end,
  the watcher those of its supervisor, and every start those of watchers that no longer exist: after `kill -9` of all
  processes there is no other way."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import NamedTuple

from . import reaper, syscalls  # relative: this program runs without its package, see the package's docstring

V1, V2, SAMPLING, NONE = "cgroup v1", "cgroup v2", "sampling", "none"
POLL_SECONDS = 0.2  # seconds between two checks of a container that has a limit
_PREFIX = "trainyard-"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIMITS = {V1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), V2: ("memory.max",)}
_OOM_COUNTER = {V1: "memory.oom_control", V2: "memory.events"}


def mechanism() -> str:
    """How memory limits are enforced on this machine, for this user: "cgroup v2", "cgroup v1", "sampling", or "none"
    without /proc."""
    return _find_mechanism()[0]


class Cgroup(NamedTuple):
    """A container's cgroup: its folder, and open descriptors of its files, because a container may have another
    /sys."""

    folder: str
    procs: int
    counter: int

    def enter(self) -> None:
        """Move this process, and with it its future children, into the cgroup."""
        os.write(self.procs, b"0")

    def oom_kills(self) -> int:
        """The number of processes that the kernel has OOM killed."""
        for line in os.pread(self.counter, 4096, 0).splitlines():
            name, _, number = line.partition(b" ")
            if name == b"oom_kill":
                return int(number)
        return 0

    def close(self) -> None:
        """Close the file descriptors; the cgroup itself stays until it is removed."""
        os.close(self.procs)
        os.close(self.counter)


class Limit(NamedTuple):
    """The memory limit of a container, as used by its init: `size` in bytes. Without a group the init samples."""

    size: int
    group: Cgroup | None

    def enter(self) -> None:
        """Move this process into the cgroup of the limit, if there is one."""
        if self.group:
            self.group.enter()

    def exceeded(self) -> bool:
        """Whether the limit is exceeded. Must be called in the init of the container."""
        if self.group:
            return self.group.oom_kills() > 0
        # The init's own pid as /proc has it, which may be that of another pid namespace.
        below = reaper.descendants(int(os.readlink("/proc/self")))
        return sum(map(_resident, below)) > self.size and sum(map(_charged, below)) > self.size


class Cgroups:
    """The cgroups of one supervisor. `watcher`: pid of its watcher."""

    def __init__(self, watcher: int) -> None:
        self._watcher = watcher
        self._version = self._parent = ""
        self._count = 0
        self._busy_folders: list[str] = []  # folders that could not be removed yet (EBUSY)

    def limit(self, size: int) -> Limit | None:
        """Create the limit of a new container, `size` in bytes; None for 0 and where limits are not possible."""
        if not size:
            return None
        if not self._version:
            self._version, self._parent = _find_mechanism()
        if self._version == NONE:
            return None
        return Limit(size, self._make(size) if self._parent else None)

    def _make(self, size: int) -> Cgroup | None:
        self._count += 1
        folder = os.path.join(self._parent, f"{_PREFIX}{self._watcher}-{self._count}")
        try:
            os.mkdir(folder)
            _restrict(self._version, folder, size)
            procs = os.open(f"{folder}/cgroup.procs", os.O_WRONLY)
            return Cgroup(folder, procs, os.open(f"{folder}/{_OOM_COUNTER[self._version]}", os.O_RDONLY))
        except OSError:
            self._busy_folders.append(folder)
            return None

    def remove(self, limit: Limit | None) -> None:
        """Remove the cgroup of an ended container. A cgroup that is still busy is removed in a later call."""
        if limit and limit.group:
            limit.group.close()
            self._busy_folders.append(limit.group.folder)
        self._busy_folders = [folder for folder in self._busy_folders if not _remove_folder(folder)]


def remove_stale_cgroups(own: int = 0) -> None:
    """Remove the empty cgroups of watchers that no longer exist, and those of the watcher with the pid `own`."""
    for parent in (*_own_cgroups(V2), *_own_cgroups(V1)):
        with contextlib.suppress(OSError):
            for name in os.listdir(parent):
                watcher = name.removeprefix(_PREFIX).partition("-")[0]
                if not name.startswith(_PREFIX) or not watcher.isdigit():
                    continue
                if int(watcher) == own or not os.path.exists(f"/proc/{watcher}"):
                    _remove_folder(f"{parent}/{name}")


def _remove_folder(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _restrict(version: str, folder: str, size: int) -> None:
    for name in _LIMITS[version]:
        if name == _LIMITS[version][0] or os.path.exists(f"{folder}/{name}"):  # memsw exists only with swap accounting
            syscalls.write(f"{folder}/{name}", str(size))
    if version == V2:
        with contextlib.suppress(OSError):
            syscalls.write(f"{folder}/memory.swap.max", "0")
        with contextlib.suppress(OSError):
            syscalls.write(f"{folder}/memory.oom.group", "1")


def _find_mechanism() -> tuple[str, str]:
    """The mechanism, and the parent folder for the cgroups of containers ("" for none). Tested with a program in a
    probe cgroup."""
    if not os.path.exists("/proc/self/cgroup"):
        return NONE, ""
    for version in (V2, V1):
        for parent in _own_cgroups(version):
            if os.access(parent, os.W_OK) and _can_limit(version, parent):
                return version, parent
    return SAMPLING, ""


def _can_limit(version: str, parent: str) -> bool:
    folder = f"{parent}/{_PREFIX}{os.readlink('/proc/self')}-probe"
    try:
        os.makedirs(folder, exist_ok=True)
        _restrict(version, folder, 1 << 30)
        os.close(os.open(f"{folder}/{_OOM_COUNTER[version]}", os.O_RDONLY))
        argv = ["/bin/sh", "-c", 'echo 0 > "$0"/cgroup.procs', folder]
        return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False
    finally:
        _remove_folder(folder)


def _own_cgroups(version: str) -> list[str]:
    """The folders of this process's cgroup of that version and of its ancestors, nearest first."""
    own_path = ""
    for line in _read("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (version == V2 and line.startswith("0::")) or (version == V1 and "memory" in names.split(",")):
            own_path = path
    for line in _read("/proc/self/mountinfo").splitlines():
        mount_text, _, filesystem_text = line.partition(" - ")
        kind, _, options = filesystem_text.partition(" ")
        root, top = mount_text.split(" ")[3:5]
        controllers = options.split(" ")[-1].split(",")
        if own_path and (kind == "cgroup2" if version == V2 else kind == "cgroup" and "memory" in controllers):
            relative = os.path.relpath(own_path, root)
            folder = top if relative == "." or relative.startswith("..") else f"{top}/{relative}"
            folders = [folder]
            while folder != top:
                folder = os.path.dirname(folder)
                folders.append(folder)
            return [candidate for candidate in folders if os.path.isdir(candidate)]
    return []


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _resident(pid: int) -> int:
    """Resident set size of a process in bytes, including shared pages."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * _PAGE if len(words) > 1 else 0


def _charged(pid: int) -> int:
    """Proportional share of anonymous and shmem pages in bytes: memory that a cgroup could not reclaim to a file
    either."""
    size, known = 0, False
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            size, known = size + int(line.split()[1]) * 1024, True
    return size if known else _resident(pid)
