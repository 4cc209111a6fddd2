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
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from trainyard.node import exec
from trainyard.node.doors import Door
from trainyard.node.inlets import Open
from trainyard.node.pod_logs import open_log
from trainyard.objects import parse_time

_PIECE = 1 << 16
_LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Log:
    """The file of one run. `done` says that nothing more will be written."""

    path: Path
    done: Callable[[], bool]


class Refused(Exception):
    """There is no such pod, container or log, or not now. `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


Find = Callable[[str, str, str, bool], Log]  # namespace, pod, container, previous
Enter = Callable[[str, str, str, exec.Asked], exec.Start]  # namespace, pod, container
"""How to start a program in that container. Both raise Refused."""
NO_INPUT = (
    "containers on this node have no standard input to attach to; leave out -i to see what the container prints, "
    "or start a program in it: kubectl exec -it POD -- COMMAND"
)
NOT_SERVED = (
    "this node serves logs, exec and attach of its pods, nothing else; "
    "the embedded cluster of `trainyard up` also reaches their ports, through `kubectl proxy`"
)


@dataclass(frozen=True, slots=True)
class Wanted:
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
            follow=_flag(query, "follow"),
            timestamps=_flag(query, "timestamps"),
            tail=_number(query, "tailLines"),
            since=since,
            limit=_number(query, "limitBytes"),
        )


def _flag(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _number(query: dict[str, str], name: str) -> int | None:
    if not query.get(name):
        return None
    if not query[name].isdecimal():
        raise ValueError(f"{name} must be a whole number, not {query[name]!r}")
    return int(query[name])


class Kubelet:
    def __init__(self, find: Find, enter: Enter, open_: Open, door: Door) -> None:
        self._find, self._enter, self._open, self._door = find, enter, open_, door
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", self._exec)
        app.router.add_route("*", "/attach/{namespace}/{pod}/{container}", self._attach)
        app.router.add_get("/sockets/{namespace}/{pod}/{port}", self._socket)
        app.router.add_route("*", "/{other:.*}", self._nothing)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._door.secure)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if why := self._door.refusal(request):
            raise web.HTTPUnauthorized(text=f"{why}\n")
        return await handler(request)

    async def _nothing(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text=f"{NOT_SERVED}\n")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            wanted = Wanted.read(dict(request.query), time.time())
            log = self._find(namespace, pod, container, _flag(dict(request.query), "previous"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        # Nobody tells of a client who goes while a container is silent: for him nothing more will be written.
        told = Log(log.path, lambda: log.done() or request.transport is None)
        async for piece in read(told, wanted):
            await response.write(piece)
        await response.write_eof()
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        where = [request.match_info[part] for part in ("namespace", "pod", "container")]
        try:
            asked = exec.Asked.read(request.query, request.query.getall("command", []))
            start = self._enter(where[0], where[1], where[2], asked)
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        _must_be_a_socket(request, "exec")
        return await exec.serve(request, asked, start)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
        try:
            if _flag(dict(request.query), "input"):
                raise Refused(400, NO_INPUT)
            log = self._find(namespace, pod, container, False)
            if log.done():
                raise Refused(400, f"container {container} of pod {pod} does not run; see kubectl logs {pod}")
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        _must_be_a_socket(request, "attach")
        return await exec.show(request, read(log, Wanted(follow=True, tail=0)))

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, port = (request.match_info[part] for part in ("namespace", "pod", "port"))
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise web.HTTPBadRequest(text=f"port must be a number from 1 to 65535, not {port!r}\n")
        try:
            return web.Response(text=str(await self._open(namespace, pod, int(port))))
        except Refused as missing:
            return web.Response(status=missing.code, text=f"{missing}\n")
        except OSError as error:
            return web.Response(status=503, text=f"this node cannot make a socket in its folder: {error}\n")


def _must_be_a_socket(request: web.Request, what: str) -> None:
    if not exec.chosen_protocol(request.headers.get("Sec-WebSocket-Protocol", "")):
        known = " or ".join(exec.PROTOCOLS)
        text = f"{what} needs a WebSocket with the subprotocol {known}, which an API server passes on from 1.36"
        raise web.HTTPBadRequest(text=f"{text}\n")


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
        file = os.fdopen(open_log(log.path), "rb")
    except OSError as error:  # the container has removed it, or put something else into its place
        yield f"the log {log.path.parent.name}/{log.path.name} cannot be read: {error.strerror}\n".encode()
        return
    with file:
        if wanted.tail is not None:
            _seek_tail(file, wanted.tail)
        if wanted.since is not None and os.fstat(file.fileno()).st_mtime < wanted.since:
            file.seek(0, 2)
        while True:
            last = log.done()  # asked before reading: what is written until then is read
            while piece := file.read(_PIECE):
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


def _seek_tail(file: BinaryIO, lines: int) -> None:
    """Go to where the last `lines` lines begin, reading backwards. A last line without an end counts."""
    end = at = file.seek(0, 2)
    if lines == 0 or end == 0:
        return
    file.seek(end - 1)
    wanted = lines + 1 if file.read(1) == b"\n" else lines
    while at > 0:
        size = min(_PIECE, at)
        at -= size
        file.seek(at)
        piece = file.read(size)
        found = piece.count(b"\n")
        if found >= wanted:
            for _ in range(found - wanted):
                piece = piece[piece.index(b"\n") + 1 :]
            cut = len(piece) - piece.index(b"\n") - 1
            file.seek(at + size - cut)
            return
        wanted -= found
    file.seek(0)
