"""The node's kubelet API: logs, exec and attach over HTTP on loopback, for authenticated clients.

Rules:
- A log is a file, written by the container's init (supervisor/init.py). It is opened only when a client reads it.
- Times of lines are not recorded: `timestamps` puts the time of reading before each line, and `sinceSeconds` and
  `sinceTime` omit a run only when it has written nothing since then.
- `follow` polls the file (log_poll.py), only while a client follows, and ends when the container has ended.
- Attach follows the log from its current end: containers on this node have no standard input to attach to.
- `/sockets` is no path of the kubelet. It returns to the embedded API server, on the same machine, the path of the Unix
  socket that forwards to a port of a pod (pod_sockets.py)."""

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

from trainyard.node.kubelet.authentication import ClientAuthenticator
from trainyard.node.kubelet.log_poll import LogPoll
from trainyard.node.kubelet.pod_logs import open_log
from trainyard.node.kubelet.pod_sockets import SocketOpener
from trainyard.objects import log_files, parse_time

if TYPE_CHECKING:
    from trainyard.node.kubelet import exec
    from trainyard.node.kubelet.http_server import KubeletHttp

_BACKLOG = 128


class ContainerLog(msgspec.Struct, frozen=True):
    """The log file of one run. `done` returns True when nothing more will be written to it."""

    path: Path
    done: Callable[[], bool]


class RequestError(Exception):
    """The pod, container or log does not exist, or is not available now. `code` is the HTTP status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


LogFinder = Callable[[str, str, str, bool], ContainerLog]  # namespace, pod, container, previous
ExecStarter = Callable[[str, str, str, "exec.ExecRequest"], "exec.Start"]  # namespace, pod, container
"""Returns a function that starts a program in that container. Both `LogFinder` and `ExecStarter` raise RequestError."""
NO_INPUT = (
    "containers on this node have no standard input to attach to; leave out -i to see what the container prints, "
    "or start a program in it: kubectl exec -it POD -- COMMAND"
)
NOT_SERVED = (
    "this node serves logs, exec and attach of its pods, nothing else; "
    "the embedded cluster of `trainyard up` also reaches their ports, through `kubectl proxy`"
)


class LogOptions(msgspec.Struct, frozen=True):
    """The query parameters of a log request."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit: int | None = None

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


class Kubelet:
    """Listens from `start` on. The HTTP server is imported at the first connection: most `trainyard run` processes end
    without one."""

    def __init__(
        self,
        find_log: LogFinder,
        start_exec: ExecStarter,
        open_socket: SocketOpener,
        authenticator: ClientAuthenticator,
    ) -> None:
        self._find_log, self._start_exec, self._open_socket = find_log, start_exec, open_socket
        self._authenticator = authenticator
        self._log_poll = LogPoll()
        self._listener: socket.socket | None = None
        self._http: asyncio.Task[KubeletHttp] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError."""
        self._listener = listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        self.port = int(listener.getsockname()[1])
        asyncio.get_running_loop().add_reader(listener, self._accept_first)

    def _accept_first(self) -> None:
        from trainyard.node.kubelet.http_server import KubeletHttp

        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            http = KubeletHttp(self._find_log, self._start_exec, self._open_socket, self._authenticator)
            self._http = asyncio.create_task(http.serve(listener))

    async def stop(self) -> None:
        """Stop listening, and close the HTTP server if a request has started it."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._http is not None:
            await (await self._http).stop()
            self._http = None

    def logs(self, url: str, disconnected: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """Status code and body of the response to a GET of that URL, for the API server in this process.

        disconnected: returns True when the client has disconnected; then the body ends.
        """
        parts = urlsplit(url)
        namespace, pod, container = (unquote(part) for part in parts.path.split("/")[2:5])
        query = dict(parse_qsl(parts.query))
        try:
            options = LogOptions.read(query, time.time())
            log = self._find_log(namespace, pod, container, flag(query, "previous"))
        except ValueError as error:
            return 400, _body(f"{error}\n")
        except RequestError as refused:
            return refused.code, _body(f"{refused}\n")
        return 200, read_log(ContainerLog(log.path, lambda: log.done() or disconnected()), options, self._log_poll)


async def _body(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


async def read_log(log: ContainerLog, options: LogOptions, poll: LogPoll) -> AsyncGenerator[bytes, None]:
    """The bytes of a log, selected by `options`; `poll` waits for more. The reads block the event loop, but only
    briefly: the files are local."""
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
            offset = log_files.tail_offset(file, options.tail)
        if options.since is not None and os.fstat(file.fileno()).st_mtime < options.since:
            offset = file.seek(0, os.SEEK_END)
        while True:
            is_last = log.done()  # checked before reading: output written before the end is read
            while True:
                piece, offset = log_files.read_piece(file, offset)
                if not piece:
                    break
                yield piece
            if is_last or not options.follow:
                return
            await poll.wait(file.fileno(), offset, log.done)


async def _timestamped(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _timestamp() + line + b"\n"
    if rest:
        yield _timestamp() + rest


def _timestamp() -> bytes:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
