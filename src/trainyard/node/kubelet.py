"""The node's HTTP face: the kubelet's paths for logs, exec and attach, on loopback, for those whom its door lets in.

Rules:
- A log is a file, which the container's init writes (hub/init.py). Nothing is done here until somebody reads it.
- Times of lines are not recorded: `timestamps` puts the time of reading before each line, and `sinceSeconds` and
  `sinceTime` leave out a run only when it wrote nothing since then.
- Following looks at the file on a short timer, only while somebody follows, and ends when the container has.
- Attach is a log that is followed from now on: containers here have no standard input that somebody could hold.
- `/sockets` is no kubelet's path. It tells our own API server, on the same machine, which socket leads to a port of a
  pod (inlets.py)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from trainyard.node.doors import Door
from trainyard.node.inlets import Open
from trainyard.node.pod_logs import open_log
from trainyard.objects import log_files, parse_time

if TYPE_CHECKING:
    from trainyard.node import exec
    from trainyard.node.kubelet_http import KubeletHttp

_BACKLOG = 128
_LOOK_EVERY = 0.05


class Log(msgspec.Struct, frozen=True):
    """The file of one run. `done` says that nothing more will be written."""

    path: Path
    done: Callable[[], bool]


class Refused(Exception):
    """There is no such pod, container or log, or not now. `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


Find = Callable[[str, str, str, bool], Log]  # namespace, pod, container, previous
Enter = Callable[[str, str, str, "exec.Asked"], "exec.Start"]  # namespace, pod, container
"""How to start a program in that container. Both raise Refused."""
NO_INPUT = (
    "containers on this node have no standard input to attach to; leave out -i to see what the container prints, "
    "or start a program in it: kubectl exec -it POD -- COMMAND"
)
NOT_SERVED = (
    "this node serves logs, exec and attach of its pods, nothing else; "
    "the embedded cluster of `trainyard up` also reaches their ports, through `kubectl proxy`"
)


class Wanted(msgspec.Struct, frozen=True):
    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit: int | None = None

    @classmethod
    def read(cls, query: dict[str, str], now: float) -> Wanted:
        """Raises ValueError naming the parameter."""
        since = parse_time(query["sinceTime"]) if query.get("sinceTime") else None
        if (seconds := _number(query, "sinceSeconds")) is not None:
            since = now - seconds
        return cls(
            follow=flag(query, "follow"),
            timestamps=flag(query, "timestamps"),
            tail=_number(query, "tailLines"),
            since=since,
            limit=_number(query, "limitBytes"),
        )


def flag(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _number(query: dict[str, str], name: str) -> int | None:
    if not query.get(name):
        return None
    if not query[name].isdecimal():
        raise ValueError(f"{name} must be a whole number, not {query[name]!r}")
    return int(query[name])


class Kubelet:
    """Listens from `start` on. What serves is loaded by the first connection: many a `trainyard run` ends before it."""

    def __init__(self, find: Find, enter: Enter, open_: Open, door: Door) -> None:
        self._find, self._enter, self._open, self._door = find, enter, open_, door
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[KubeletHttp] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError."""
        self._listener = listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        self.port = int(listener.getsockname()[1])
        asyncio.get_running_loop().add_reader(listener, self._serve)

    def _serve(self) -> None:
        from trainyard.node.kubelet_http import KubeletHttp

        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            http = KubeletHttp(self._find, self._enter, self._open, self._door)
            self._serving = asyncio.create_task(http.serve(listener))

    async def stop(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._serving is not None:
            await (await self._serving).stop()
            self._serving = None

    def logs(self, url: str, gone: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """What is answered to a GET of that URL: the code, and the body. For the API server in this process.

        gone: whether the client has gone, after which nothing more comes.
        """
        parts = urlsplit(url)
        namespace, pod, container = (unquote(part) for part in parts.path.split("/")[2:5])
        query = dict(parse_qsl(parts.query))
        try:
            wanted = Wanted.read(query, time.time())
            log = self._find(namespace, pod, container, flag(query, "previous"))
        except ValueError as error:
            return 400, _text(f"{error}\n")
        except Refused as refused:
            return refused.code, _text(f"{refused}\n")
        return 200, read(Log(log.path, lambda: log.done() or gone()), wanted)


async def _text(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


async def read(log: Log, wanted: Wanted) -> AsyncGenerator[bytes, None]:
    """The bytes of a log as they are wanted. Files are on this machine: reading them blocks no longer than memory."""
    left = wanted.limit if wanted.limit is not None else -1
    async for piece in _stamped(log, wanted) if wanted.timestamps else _pieces(log, wanted):
        if left >= 0:
            piece = piece[:left]
            left -= len(piece)
        if piece:
            yield piece
        if left == 0:
            return


async def _pieces(log: Log, wanted: Wanted) -> AsyncIterator[bytes]:
    try:
        file = os.fdopen(open_log(log.path), "rb", buffering=0)
    except OSError as error:  # the container has removed it, or put something else into its place
        yield f"the log {log.path.parent.name}/{log.path.name} cannot be read: {error.strerror}\n".encode()
        return
    with file:
        at = 0
        if wanted.tail is not None:
            at = log_files.tail_begin(file, wanted.tail)
        if wanted.since is not None and os.fstat(file.fileno()).st_mtime < wanted.since:
            at = file.seek(0, os.SEEK_END)
        while True:
            last = log.done()  # asked before reading: what is written until then is read
            while True:
                piece, at = log_files.read_piece(file, at)
                if not piece:
                    break
                yield piece
            if last or not wanted.follow:
                return
            await asyncio.sleep(_LOOK_EVERY)


async def _stamped(log: Log, wanted: Wanted) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in _pieces(log, wanted):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _now() + line + b"\n"
    if rest:
        yield _now() + rest


def _now() -> bytes:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
