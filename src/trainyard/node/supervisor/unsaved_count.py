"""Counts the files in folders that will be removed. Limited in time and entries: a container's end does not wait for a
large tree.

Only non-empty regular files count; symbolic links are not followed, and other mounts below are not entered."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Collection
from typing import Any

MAX_SECONDS = 2.0  # seconds
MAX_ENTRIES = 200_000
MAX_NAMED = 5
_CACHES = frozenset({"__pycache__"})  # compiled Python modules can be created again


class FileCount:
    """Number, total size in bytes, and the largest of the files."""

    def __init__(self, since: int = 0) -> None:
        """`since`: files whose ctime (ns since the epoch) is before it do not count."""
        self._since = since
        self.files = self.bytes = 0
        self.complete = True
        self._entries = 0
        self._deadline = time.monotonic() + MAX_SECONDS
        self._largest: list[tuple[int, str]] = []

    def add(self, folder: str, shown: str, skip: Collection[str] = ()) -> None:
        """Count the files below `folder`, which is at `shown` in the container. `skip`: paths in the container to
        skip."""
        try:
            device = os.stat(folder).st_dev
        except OSError:
            return
        pending = [(folder, shown.rstrip("/"))]
        while pending:
            path, prefix = pending.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        if not self._has_time():
                            return
                        name = f"{prefix}/{entry.name}"
                        if name not in skip:  # before any stat, which could block on a mount such as NFS
                            self._count_entry(entry, name, device, pending)
            except OSError:  # removed meanwhile, or not readable
                continue

    def _count_entry(self, entry: os.DirEntry[str], name: str, device: int, pending: list[tuple[str, str]]) -> None:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _CACHES and entry.stat(follow_symlinks=False).st_dev == device:
                pending.append((entry.path, name))
        elif entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            size = status.st_size
            if not size or status.st_ctime_ns < self._since:  # empty files include mount points
                return
            self.files += 1
            self.bytes += size
            push = heapq.heappush if len(self._largest) < MAX_NAMED else heapq.heappushpop
            push(self._largest, (size, name))

    def _has_time(self) -> bool:
        self._entries += 1
        if self._entries > MAX_ENTRIES or (self._entries % 256 == 0 and time.monotonic() > self._deadline):
            self.complete = False
        return self.complete

    def message(self) -> dict[str, Any]:
        """The count as it is sent to the node process."""
        largest = [[name, size] for size, name in sorted(self._largest, key=lambda pair: (-pair[0], pair[1]))]
        return {"files": self.files, "bytes": self.bytes, "complete": self.complete, "largest": largest}
