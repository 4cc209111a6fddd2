"""Counts the files in folders that are about to go. Bounded: a container's end does not wait for a large tree.

Only regular files with content count; links are not followed, and what is mounted below is not entered."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Collection
from typing import Any

LONGEST = 2.0  # seconds
MOST_ENTRIES = 200_000
MOST_NAMED = 5
_CACHES = frozenset({"__pycache__"})  # compiled modules of Python are made again


class Count:
    """How many files there are, how large, and which are the largest."""

    def __init__(self, since: int = 0) -> None:
        """`since`: files that nobody has changed after that time (nanoseconds) do not count."""
        self._since = since
        self.files = self.bytes = 0
        self.complete = True
        self._entries = 0
        self._deadline = time.monotonic() + LONGEST
        self._largest: list[tuple[int, str]] = []

    def add(self, folder: str, shown: str, skip: Collection[str] = ()) -> None:
        """Count below `folder`, which the container sees as `shown`. `skip`: paths in the container to leave out."""
        try:
            device = os.stat(folder).st_dev
        except OSError:
            return
        todo = [(folder, shown.rstrip("/"))]
        while todo:
            path, prefix = todo.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        if not self._has_time():
                            return
                        name = f"{prefix}/{entry.name}"
                        if name not in skip:  # before any stat: what is mounted there may not answer
                            self._look_at(entry, name, device, todo)
            except OSError:  # gone meanwhile, or the program has locked us out
                continue

    def _look_at(self, entry: os.DirEntry[str], name: str, device: int, todo: list[tuple[str, str]]) -> None:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _CACHES and entry.stat(follow_symlinks=False).st_dev == device:
                todo.append((entry.path, name))
        elif entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            size = status.st_size
            if not size or status.st_ctime_ns < self._since:  # mount points of files are empty
                return
            self.files += 1
            self.bytes += size
            push = heapq.heappush if len(self._largest) < MOST_NAMED else heapq.heappushpop
            push(self._largest, (size, name))

    def _has_time(self) -> bool:
        self._entries += 1
        if self._entries > MOST_ENTRIES or (self._entries % 256 == 0 and time.monotonic() > self._deadline):
            self.complete = False
        return self.complete

    def message(self) -> dict[str, Any]:
        """As it is sent to the runner."""
        largest = [[name, size] for size, name in sorted(self._largest, key=lambda pair: (-pair[0], pair[1]))]
        return {"files": self.files, "bytes": self.bytes, "complete": self.complete, "largest": largest}
