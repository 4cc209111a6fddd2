"""The report on what the containers of a pod did with their grace period: which files they saved, or which ones SIGKILL
left unfinished. From it a user knows from where the next attempt starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from trainyard.node.kubelet.usage.stop_writes import StopWrites, WrittenFile
from trainyard.node.kubelet.volumes.unsaved_files import size_text
from trainyard.node.sandbox.supervisor_client import Mount
from trainyard.objects.numbers import count_text
from trainyard.objects.printable import printable, quoted_path
from trainyard.objects.usage import FILES_SAVED, KILLED_AFTER_GRACE_PERIOD

MAX_NAMES, MAX_ENTRIES = 3, 1000

Mounts = Mapping[str, Sequence[Mount]]  # by container; none where its processes see the paths of this machine


class SavedFile(NamedTuple):
    """A file after the end of its container. `size`: in bytes; `is_there`: it was not removed since."""

    path: str
    size: int
    is_there: bool = True


class StopReport:
    """The stop of one pod."""

    def __init__(self) -> None:
        self._stops: dict[str, StopWrites] = {}  # by container

    def add(self, container: str, writes: StopWrites) -> None:
        """A container has ended that was told to."""
        self._stops[container] = writes

    def message(self, mounts: Mounts | None) -> tuple[str, str]:
        """Reason and message of the event; no message for containers that wrote nothing and ended by themselves. Looks
        at the files, whose disk may not answer; without `mounts` it tells what was seen while they were written."""
        is_killed = any(writes.killed_after is not None for writes in self._stops.values())
        texts = [text for container in self._stops for text in self._texts(container, mounts)]
        return KILLED_AFTER_GRACE_PERIOD if is_killed else FILES_SAVED, "; ".join(texts)

    def _texts(self, container: str, mounts: Mounts | None) -> Iterator[str]:
        writes, name = self._stops[container], f"container {container} " if len(self._stops) > 1 else ""
        is_killed, grace = writes.killed_after is not None, f"its grace period of {writes.killed_after or 0:.3g} s"
        saved = [file for file in writes.files if not (is_killed and file.is_open)]
        if saved:
            files = [
                SavedFile(file.path, file.size) if mounts is None else as_saved(file, mounts.get(container, ()))
                for file in saved
            ]
            files.sort(key=lambda file: -file.size)
            amount = f"{count_text(len(files), 'file')}, {size_text(sum(file.size for file in files))}"
            seconds = max(file.seconds for file in saved)
            yield f"{name}saved {amount}, in {seconds:.1f} s after SIGTERM: {_names(files)}"
        if unfinished := [SavedFile(file.path, file.size) for file in writes.files if file not in saved]:
            size = size_text(sum(file.size for file in unfinished))
            yield f"{name}was killed while it wrote {_names(unfinished)}: {size} in {grace}"
        elif is_killed:
            yield f"{name}was killed after {grace}, and had no file open for writing"


def host_path(path: str, mounts: Sequence[Mount]) -> str:
    """The path on this machine of a path in a container with these mounts."""
    for mount in sorted(mounts, key=lambda mount: -len(mount.target)):
        if f"{path}/".startswith(f"{mount.target}/"):
            return os.path.normpath(f"{mount.source}/{mount.subpath}/{path.removeprefix(mount.target)}")
    return path


def as_saved(file: WrittenFile, mounts: Sequence[Mount]) -> SavedFile:
    """The file as it is now, also when it got another name in its folder after it was written."""
    path = host_path(file.path, mounts)
    try:
        entry = os.lstat(path)
        if stat.S_ISREG(entry.st_mode) and file.inode in (0, entry.st_ino):
            return SavedFile(file.path, entry.st_size if file.is_new else file.size)
    except OSError:
        pass
    try:
        with os.scandir(os.path.dirname(path)) as entries:
            for _, other in zip(range(MAX_ENTRIES), entries, strict=False):
                if other.inode() == file.inode and other.is_file(follow_symlinks=False):
                    size = other.stat(follow_symlinks=False).st_size if file.is_new else file.size
                    return SavedFile(os.path.join(os.path.dirname(file.path), other.name), size)
    except OSError:
        pass
    return SavedFile(file.path, file.size, False)


def _names(files: Sequence[SavedFile]) -> str:
    names = [
        quoted_path(printable(file.path, line=True)) + ("" if file.is_there else " (renamed or removed since)")
        for file in files[:MAX_NAMES]
    ]
    return ", ".join(names) + (f" and {len(files) - MAX_NAMES} more" if len(files) > MAX_NAMES else "")
