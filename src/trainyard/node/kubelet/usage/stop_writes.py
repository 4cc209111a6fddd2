"""What the processes of a container write to files between SIGTERM and their end: a checkpoint, mostly.

Rules:
- The files that a process has open for writing are in /proc/PID/fd, and how far it is in each in /proc/PID/fdinfo. A
  pass reads these and touches none of the files, whose disk may not answer.
- A pass comes every INTERVAL seconds and takes BUDGET seconds of CPU time, however many containers stop at a time: the
  next one goes on with those that were looked at longest ago. A file that is opened and closed between two passes is
  not seen.
- The processes are those that the last pass of the usage sampler has seen. A container that stops before the first one
  has written no checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from trainyard.node.kubelet.usage.progress import METRICS_FILE

INTERVAL, BUDGET = 0.025, 0.0025  # seconds
LOOKED_AT_FIRST = 16  # containers that stop at a time
_LONGEST_FDINFO = 512  # bytes
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
_DELETED = " (deleted)"  # the kernel writes it after the name of a file that has none any more

FileKey = tuple[int, int | str]  # mount, and inode or path


class OpenFile(NamedTuple):
    """A file that a process has open for writing. `path`: as the process sees it; `inode`: 0 before Linux 5.14;
    `position`: in bytes."""

    mount: int
    inode: int
    path: str
    position: int

    @property
    def key(self) -> FileKey:
        """The file, also under another name."""
        return self.mount, self.inode or self.path


class WrittenFile(NamedTuple):
    """A file that was written after SIGTERM. `size`: of what was seen to be written, in bytes; `is_new`: all of it was;
    `is_open`: it was open for writing at the end; `seconds`: from SIGTERM until it was last seen open."""

    path: str
    inode: int
    size: int
    is_new: bool
    is_open: bool
    seconds: float


class StopWrites(NamedTuple):
    """What a container did with its grace period. `killed_after`: seconds from SIGTERM to SIGKILL, None if it ended by
    itself."""

    files: tuple[WrittenFile, ...]
    killed_after: float | None = None


def open_files(pid: int) -> list[OpenFile]:
    """The files that a process has open for writing. Raises OSError: it has ended, or is somebody else's."""
    files: list[OpenFile] = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        try:
            if not os.lstat(path).st_mode & 0o200:  # the link itself says how the file is open
                continue
            target = os.readlink(path)
            if not target.startswith("/") or target.startswith(_NO_FILES) or target.endswith((_DELETED, METRICS_FILE)):
                continue
            files.append(parse_fdinfo(target, _read(f"/proc/{pid}/fdinfo/{name}")))
        except (OSError, KeyError, ValueError):  # it was closed meanwhile
            continue
    return files


def parse_fdinfo(path: str, text: bytes) -> OpenFile:
    """The content of /proc/PID/fdinfo/FD. Raises KeyError, ValueError."""
    fields = dict(line.split(b":\t", 1) for line in text.splitlines() if b":\t" in line)
    return OpenFile(int(fields[b"mnt_id"]), int(fields.get(b"ino", 0)), path, int(fields[b"pos"]))


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _LONGEST_FDINFO)
    finally:
        os.close(fd)


class StoppingRun(msgspec.Struct):
    """A container that has got SIGTERM, at the monotonic time `at`."""

    at: float
    looked_at: float = 0.0
    killed_after: float | None = None
    before: dict[FileKey, int] | None = None  # the positions at the first pass
    files: dict[FileKey, WrittenFile] = {}

    def look(self, files: Iterable[OpenFile], at: float) -> None:
        """The files that are open for writing at the monotonic time `at`."""
        self.looked_at = at
        if self.before is None:
            self.before = {file.key: file.position for file in files}
            return
        files_now = {key: file._replace(is_open=False) for key, file in self.files.items()}
        for file in files:
            size, is_new = file.position - self.before.get(file.key, 0), file.key not in self.before
            if size > 0 or is_new:
                files_now[file.key] = WrittenFile(file.path, file.inode, size, is_new, True, at - self.at)
        self.files = files_now


class StopWatcher:
    """Watches the containers of a node that stop. `members`: run -> pids of its processes; `is_running`: whether `end`
    has not been called for a run."""

    def __init__(
        self,
        members: Callable[[], Mapping[str, list[int]]],
        is_running: Callable[[str], bool],
        files_of: Callable[[int], list[OpenFile]] = open_files,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members, self._is_running, self._files_of, self._clock = members, is_running, files_of, clock
        self._runs: dict[str, StoppingRun] = {}
        self._watch: asyncio.Task[None] | None = None

    def begin(self, run: str) -> None:
        """The container gets SIGTERM, also one that has just ended, which the lifecycle of its pod learns later."""
        if not self._is_running(run):
            return
        stopping = self._runs.setdefault(run, StoppingRun(self._clock()))
        if len(self._runs) <= LOOKED_AT_FIRST and stopping.before is None:
            self._look({run: stopping})  # before the signal: a small file may be written whole before the first pass
        if self._watch is None:
            self._watch = asyncio.create_task(self._look_until_ended())

    def kill(self, run: str) -> None:
        """The container gets SIGKILL."""
        if stopping := self._runs.get(run):
            stopping.killed_after = self._clock() - stopping.at

    def end(self, run: str) -> StopWrites | None:
        """The container has ended; None if it was not told to."""
        stopping = self._runs.pop(run, None)
        return StopWrites(tuple(stopping.files.values()), stopping.killed_after) if stopping else None

    async def _look_until_ended(self) -> None:
        try:
            while self._runs:
                await asyncio.to_thread(self._look, dict(self._runs))
                await asyncio.sleep(INTERVAL)
        finally:
            self._watch = None

    def _look(self, runs: Mapping[str, StoppingRun]) -> None:
        start, members = time.thread_time(), self._members()
        for run, stopping in sorted(runs.items(), key=lambda item: item[1].looked_at):
            files: list[OpenFile] = []
            for pid in members.get(run, ()):
                with contextlib.suppress(OSError):
                    files += self._files_of(pid)
            if stopping.killed_after is None:  # else its processes may be gone, and their files closed by that
                stopping.look(files, self._clock())
            if time.thread_time() - start > BUDGET:
                return
