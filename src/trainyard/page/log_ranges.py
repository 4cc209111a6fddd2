"""The logs of a job: files of the history, read by range, or, where a job runs elsewhere, what the API has of its pods.

A file is named by `REPLICA/attempt-N-PODID/CONTAINER/RUN`, as in the history, or by `REPLICA/pod/PODNAME/CONTAINER`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from trainyard.app.history.recorded_logs import LogFile, log_files
from trainyard.app.history.records import HistoryRecord
from trainyard.app.job_files import in_thread, open_file, status_of
from trainyard.client import ApiClient
from trainyard.objects import Json, name_of, namespace_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.log_files import read_piece
from trainyard.views.recorded import attempt_of
from trainyard.views.replica_view import replica_view

MAX_RANGE = 1 << 20  # bytes of one answer
MAX_API_LOG = 16 << 20  # bytes read of a log that the API gives only as a whole


class ListedLog(msgspec.Struct, frozen=True):
    """One run of one container. `size` in bytes; None: unknown, the API does not tell."""

    file: str
    replica: str
    attempt: int
    container: str
    run: int
    size: int | None


class LogRange(NamedTuple):
    """`data` begins at `offset` of a log that has `size` bytes; the next range begins at `next_offset`."""

    data: bytes
    offset: int
    next_offset: int
    size: int


def recorded_files(record: HistoryRecord) -> list[ListedLog]:
    """The log files of a record."""
    return [
        ListedLog(_file_name(log), log.replica, log.attempt, log.container, log.run, _size(log.path, record.logs))
        for log in log_files(record)
    ]


def _file_name(log: LogFile) -> str:
    return "/".join(log.path.with_suffix("").parts[-4:])


def _recorded_path(record: HistoryRecord | None, file: str) -> Path | None:
    """The path of a log of the record; None for a name that none of them has."""
    return next((log.path for log in log_files(record) if _file_name(log) == file), None) if record else None


def pod_files(pods: list[Json]) -> list[ListedLog]:
    """The present run of each container of these pods."""
    return [
        ListedLog(
            file=f"{(replica := replica_view(pod).name)}/pod/{name_of(pod)}/{container.name}",
            replica=replica,
            attempt=attempt_of(pod),
            container=container.name,
            run=container.restarts + 1,
            size=None,
        )
        for pod in pods
        for container in container_statuses(pod.get("status"))
    ]


async def read_range(
    api: ApiClient | None, record: HistoryRecord | None, pods: list[Json], file: str, offset: int, limit: int
) -> LogRange | None:
    """Up to `limit` bytes of a log from `offset`, which counts from the end if it is negative. None: no such file."""
    limit = min(limit, MAX_RANGE)
    path = await in_thread(_recorded_path, record, file)
    if record is not None and path is not None:
        return await in_thread(_read_file, path, record.logs, offset, limit)
    pod = _pod_of(pods, file)
    if pod is None or api is None:
        return None
    text = bytearray()
    async with aclosing(api.logs(namespace_of(pod), name_of(pod), file.rpartition("/")[2])) as chunks:
        async for chunk in chunks:
            text += chunk
            if len(text) > MAX_API_LOG:
                break
    start = max(0, len(text) + offset) if offset < 0 else min(offset, len(text))
    data = bytes(text[start : start + limit])
    return LogRange(data, start, start + len(data), len(text))


async def whole_log(
    api: ApiClient | None, record: HistoryRecord | None, pods: list[Json], file: str
) -> AsyncIterator[bytes] | None:
    """A log from its first byte to its present end, in pieces. None: no such file."""
    path = await in_thread(_recorded_path, record, file)
    if record is not None and path is not None:
        with contextlib.suppress(OSError):
            return _pieces(await in_thread(open_file, path, record.logs))
        return None
    pod = _pod_of(pods, file)
    if pod is None or api is None:
        return None
    return api.logs(namespace_of(pod), name_of(pod), file.rpartition("/")[2])


async def _pieces(log: FileIO) -> AsyncIterator[bytes]:
    with log:
        piece, offset = await in_thread(read_piece, log, 0)
        while piece:
            yield piece
            piece, offset = await in_thread(read_piece, log, offset)


def _pod_of(pods: list[Json], file: str) -> Json | None:
    return next((pod for pod in pods for pod_file in pod_files([pod]) if pod_file.file == file), None)


def _read_file(path: Path, root: Path, offset: int, limit: int) -> LogRange | None:
    """A hole in the file (objects/log_files.py) is skipped."""
    try:
        with open_file(path, root) as log:
            size = os.fstat(log.fileno()).st_size
            start = at = max(0, size + offset) if offset < 0 else min(offset, size)
            data = b""
            while len(data) < limit:
                piece, after = read_piece(log, at)
                if not piece:
                    break
                kept = piece[: limit - len(data)]
                data, at = data + kept, after - len(piece) + len(kept)
            return LogRange(data, start, at, size)
    except OSError:
        return None


def _size(path: Path, root: Path) -> int | None:
    try:
        return status_of(path, root).st_size
    except OSError:
        return None
