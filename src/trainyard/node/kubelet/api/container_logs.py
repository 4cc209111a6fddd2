"""The logs of containers, as the kubelet API returns them.

Rules:
- A log is a file, written by the container's init (supervisor/init.py). It is opened only when a client reads it.
- Times of lines are not recorded: `timestamps` puts the time of reading before each line, and `sinceSeconds` and
  `sinceTime` omit a run only when it has written nothing since then.
- `follow` polls the file (log_poll.py), only while a client follows, and ends when the container has ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from trainyard.node.kubelet.api.log_poll import LogPoll
from trainyard.node.kubelet.api.pod_logs import open_log
from trainyard.objects import log_files, parse_time

NEWEST_SECONDS = 0.2  # between two looks at the newest bytes of a log that grows faster than it is shown


class ContainerLog(msgspec.Struct, frozen=True):
    """The log file of one run. `is_complete` returns True when nothing more will be written to it."""

    path: Path
    is_complete: Callable[[], bool]


class LogOptions(msgspec.Struct, frozen=True):
    """The query parameters of a log request. `newest`: who follows shows the newest lines alone. When more than so many
    bytes wait, those before are left out, and counted in a line (`newestBytes`, which other kubelets do not know)."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit: int | None = None
    newest: int | None = None

    @classmethod
    def read(cls, query: dict[str, str], now: float) -> LogOptions:
        """From the query parameters; `now` is the Unix time in seconds. Raises ValueError with the parameter's name."""
        since = parse_time(query["sinceTime"]) if query.get("sinceTime") else None
        if (seconds := _whole_number(query, "sinceSeconds")) is not None:
            since = now - seconds
        return cls(
            follow=flag(query, "follow"),
            timestamps=flag(query, "timestamps"),
            tail=_whole_number(query, "tailLines"),
            since=since,
            limit=_whole_number(query, "limitBytes"),
            newest=_whole_number(query, "newestBytes") or None,
        )


def flag(query: dict[str, str], name: str) -> bool:
    """Whether a query parameter is true: `true` or `1`, as Go parses them."""
    return query.get(name, "").lower() in ("true", "1")


def _whole_number(query: dict[str, str], name: str) -> int | None:
    if not query.get(name):
        return None
    if not query[name].isdecimal():
        raise ValueError(f"{name} must be a whole number, not {query[name]!r}")
    return int(query[name])


async def read_log(log: ContainerLog, options: LogOptions, poll: LogPoll) -> AsyncGenerator[bytes, None]:
    """The bytes of a log, selected by `options`; `poll` waits for more. A read blocks the event loop for one piece at
    most: the loop serves others after each, also when the reader never waits (one in this process, of a program that
    prints faster than it is read). What looks for the last lines may read the whole file, so a thread does it."""
    remaining = options.limit if options.limit is not None else -1
    pieces = _read_log(log, options, poll)
    async for piece in _timestamped(pieces) if options.timestamps else pieces:
        if remaining >= 0:
            piece = piece[:remaining]
            remaining -= len(piece)
        if piece:
            yield piece
        if remaining == 0:
            return


async def _read_log(log: ContainerLog, options: LogOptions, poll: LogPoll) -> AsyncIterator[bytes]:
    try:
        file = os.fdopen(open_log(log.path), "rb", buffering=0)
    except OSError as error:  # the container has removed or replaced the file
        yield f"the log {log.path.parent.name}/{log.path.name} cannot be read: {error.strerror}\n".encode()
        return
    with file:
        offset = 0
        if options.tail is not None:
            offset = await asyncio.to_thread(log_files.tail_offset, file, options.tail)
        if options.since is not None and os.fstat(file.fileno()).st_mtime < options.since:
            offset = file.seek(0, os.SEEK_END)
        while True:
            is_last = log.is_complete()  # checked before reading: output written before the end is read
            sent = 0
            while True:
                piece, offset = log_files.read_piece(file, offset)
                if not piece:
                    break
                yield piece
                await asyncio.sleep(0)
                sent += len(piece)
                if options.follow and options.newest is not None and sent > options.newest:
                    await asyncio.sleep(NEWEST_SECONDS)
                    sent, begin = 0, file.seek(0, os.SEEK_END) - options.newest
                    if begin > offset:
                        yield log_files.left_out_note(begin - offset)
                        offset = begin
            if is_last or not options.follow:
                return
            await poll.wait(file.fileno(), offset, log.is_complete)


async def _timestamped(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece as it comes: a line may be longer than what can be kept of it."""
    begins_line = True
    async for piece in pieces:
        timestamp = _timestamp()
        ends_line = piece.endswith(b"\n")
        text = piece[: len(piece) - ends_line].replace(b"\n", b"\n" + timestamp) + b"\n" * ends_line
        yield timestamp + text if begins_line else text
        begins_line = ends_line


def _timestamp() -> bytes:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
