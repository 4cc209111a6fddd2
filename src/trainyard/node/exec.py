"""One exec session: a program in a running container on one side, a WebSocket with the kubelet's channels on the other.

Each frame is one byte that names the channel, and then bytes: 0 stdin, 1 stdout, 2 stderr, 3 how it ended (a Status),
4 a new size of the terminal (JSON). In the subprotocol v5 the frame [255, 0] says that stdin has ended.

Rules:
- Bytes are passed on as they are. Who reads slowly slows the program down, and the other way round.
- The session is over when the program has ended and what it had written by then has been sent. A daemon that keeps
  the pipes open does not hold it up.
- A session that is closed early closes its streams, nothing more: the program belongs to the container."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import struct
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from aiohttp import WSMsgType, web

from trainyard.node.sandbox import KILLED, Failed, SandboxError
from trainyard.objects import Json

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
LARGEST_FRAME = 16 << 20
_PIECE = 1 << 15
_MOST_AFTER_THE_END = 1 << 20  # what a pipe may still hold when its program has ended; a daemon may go on writing
_TERMINAL_SETTLES = 0.05  # seconds: the kernel passes on what was written to a terminal a moment later

Streams = tuple[int, int, int, int]  # stdin, stdout, stderr of the program, and the pipe for what becomes of it
Start = Callable[[Streams], Awaitable[None]]


class Asked(msgspec.Struct, frozen=True):
    command: list[str]
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str], command: list[str]) -> Asked:
        """The kubelet's parameters. Raises ValueError in its words."""

        def is_set(name: str) -> bool:
            return query.get(name, "").lower() in ("1", "true")

        tty = is_set("tty")
        asked = cls(command, is_set("input"), is_set("output"), is_set("error") and not tty, tty)
        if not command or not command[0]:
            raise ValueError("you must specify at least 1 command for the container")
        if not (asked.stdin or asked.stdout or asked.stderr):
            raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
        return asked


@dataclass(slots=True)
class Ends:
    """Both ends of a session's streams: `theirs` go to the program; `outputs` and `stdin` are ours."""

    theirs: Streams
    result: int
    stdin: int = -1
    outputs: dict[int, int] = field(default_factory=dict)  # file descriptor -> channel
    terminal: int = -1

    def let_go(self) -> None:
        """Close what the program has by now."""
        _close(*self.theirs)

    def close(self) -> None:
        _close(self.result, self.stdin, self.terminal, *(fd for fd in self.outputs if fd != self.terminal))
        self.stdin = -1

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


def _close(*fds: int) -> None:
    for fd in set(fds):
        if fd >= 0:
            os.close(fd)


def open_ends(asked: Asked) -> Ends:
    """Pipes, or a terminal; what nobody asked for is /dev/null. Ours never block."""
    result, told = os.pipe()
    if asked.tty:
        ours, theirs = os.openpty()
        ends = Ends(
            (theirs, theirs, theirs, told), result, terminal=ours, outputs={ours: STDOUT} if asked.stdout else {}
        )
        ends.stdin = os.dup(ours) if asked.stdin else -1
    else:
        nothing = os.open(os.devnull, os.O_RDWR)
        inner, outer = os.pipe() if asked.stdin else (nothing, -1)
        given, outputs = [inner], {}
        for channel, wanted in ((STDOUT, asked.stdout), (STDERR, asked.stderr)):
            fd, written = os.pipe() if wanted else (-1, nothing)
            given.append(written)
            if wanted:
                outputs[fd] = channel
        if nothing not in given:
            os.close(nothing)
        ends = Ends((given[0], given[1], given[2], told), result, outer, outputs)
    for fd in (result, ends.stdin, *ends.outputs):
        if fd >= 0:
            os.set_blocking(fd, False)
    return ends


class Socket(Protocol):
    """What a session needs of a WebSocket."""

    async def send_bytes(self, data: bytes) -> None: ...
    async def receive(self) -> Any: ...


class Session:
    def __init__(self, socket: Socket, asked: Asked) -> None:
        self._socket, self._asked = socket, asked
        self._ended = asyncio.Event()

    async def run(self, start: Start) -> None:
        """Start the program and serve it until its end, or until the client is gone."""
        ends = open_ends(self._asked)
        try:
            try:
                # As the kubelet does: an empty frame says that the streams are there.
                await self._send(STDOUT if self._asked.stdout else STDERR if self._asked.stderr else ERROR, b"")
                await start(ends.theirs)
            except (Failed, SandboxError) as error:
                await self._send(ERROR, json.dumps(internal_error(str(error))).encode())
                return
            finally:
                ends.let_go()
            await self._serve(ends)
        except ConnectionError:
            pass  # the client is gone, and the program goes on without it
        finally:
            ends.close()

    async def _serve(self, ends: Ends) -> None:
        listening = asyncio.ensure_future(self._listen(ends))
        serving = asyncio.ensure_future(self._pass_on(ends))
        try:
            await asyncio.wait((listening, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await self._send(ERROR, json.dumps(serving.result()).encode())
            elif (error := listening.exception()) is not None:
                raise error
        finally:
            for task in (listening, serving):
                task.cancel()
            await asyncio.gather(listening, serving, return_exceptions=True)

    async def _pass_on(self, ends: Ends) -> Json:
        """Everything that the program says, and then how it ended."""
        outputs = [asyncio.ensure_future(self._output(fd, channel)) for fd, channel in ends.outputs.items()]
        try:
            said = await _everything(ends.result)
            self._ended.set()
            await asyncio.gather(*outputs)
        finally:
            for one in outputs:
                one.cancel()
        outcome = Outcome.read(said)
        if outcome.failed:
            await self._complain(outcome.failed)
        return outcome.status(self._asked.command)

    async def _complain(self, message: str) -> None:
        """A program that cannot be run has nothing to say; a person at the other end would see a number only."""
        if self._asked.stderr:
            await self._send(STDERR, f"{message}\n".encode())
        elif self._asked.tty and self._asked.stdout:
            await self._send(STDOUT, f"{message}\r\n".encode())

    async def _output(self, fd: int, channel: int) -> None:
        left = _MOST_AFTER_THE_END
        while left > 0:
            ended = self._ended.is_set()  # asked before reading: what was written until then is read
            try:
                piece = os.read(fd, _PIECE)
            except BlockingIOError:
                if ended and not (self._asked.tty and await self._readable(fd, _TERMINAL_SETTLES)):
                    return
                if not ended:
                    await self._readable(fd, None)
                continue
            except OSError:  # a terminal that nobody has open any more
                return
            if not piece:
                return
            left -= len(piece) if ended else 0
            await self._send(channel, piece)

    async def _readable(self, fd: int, seconds: float | None) -> bool:
        """Wait until there is something to read, the program has ended, or the time is over; is there something?"""
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, _wake, there)
        ended = asyncio.ensure_future(self._ended.wait()) if seconds is None else None
        try:
            await asyncio.wait([one for one in (there, ended) if one], timeout=seconds, return_when="FIRST_COMPLETED")
            return there.done()
        finally:
            loop.remove_reader(fd)
            if ended:
                ended.cancel()

    async def _listen(self, ends: Ends) -> None:
        """What the client says, until it is gone."""
        while True:
            message = await self._socket.receive()
            if message.type == WSMsgType.TEXT:
                frame = str(message.data).encode()
            elif message.type == WSMsgType.BINARY:
                frame = bytes(message.data)
            else:
                return
            channel = frame[0] if frame else -1
            if channel == STDIN and ends.stdin >= 0:
                await self._input(ends, frame[1:])
            elif channel == RESIZE and ends.terminal >= 0:
                _resize(ends.terminal, frame[1:])
            elif channel == CLOSE and frame[1:] == bytes([STDIN]):
                ends.close_stdin()

    async def _input(self, ends: Ends, piece: bytes) -> None:
        loop = asyncio.get_running_loop()
        while piece:
            try:
                piece = piece[os.write(ends.stdin, piece) :]
            except BlockingIOError:
                room: asyncio.Future[None] = loop.create_future()
                loop.add_writer(ends.stdin, _wake, room)
                try:
                    await room
                finally:
                    loop.remove_writer(ends.stdin)
            except OSError:  # nobody reads it any more
                ends.close_stdin()
                return

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _resize(terminal: int, said: bytes) -> None:
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, struct.error, OSError):
        size = json.loads(said)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", int(size["Height"]), int(size["Width"]), 0, 0))


async def _everything(fd: int) -> bytes:
    """All that comes through a pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    found = b""
    while True:
        try:
            piece = os.read(fd, _PIECE)
        except BlockingIOError:
            there: asyncio.Future[None] = loop.create_future()
            loop.add_reader(fd, _wake, there)
            try:
                await there
            finally:
                loop.remove_reader(fd)
            continue
        if not piece:
            return found
        found += piece


class Outcome(msgspec.Struct, frozen=True):
    """What became of a program. `failed`: why it could not be run. `begun`: the container's init took it."""

    code: int
    failed: str = ""
    begun: bool = True

    @classmethod
    def read(cls, said: bytes) -> Outcome:
        """The lines of the init's pipe (hub/init.py). Without a code the container ended first, and all with it."""
        lines: dict[str, Any] = {}
        for line in said.splitlines():
            lines |= json.loads(line)
        error = lines.get("error")
        if error:
            return cls(int(error["code"]), str(error["message"]))
        return cls(int(lines.get("code", KILLED)), begun="pid" in lines)

    def status(self, command: list[str]) -> Json:
        if not self.begun:
            return internal_error("the container ended before the program was started")
        if self.code == 0:
            return {"metadata": {}, "status": "Success"}
        why = self.failed or f"error executing command [{' '.join(command)}], exit code {self.code}"
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: {why}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(self.code)}]},
        }


def internal_error(why: str) -> Json:
    """What the client gets when there was no program whose exit code could be told."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: error executing command in container: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": f"error executing command in container: {why}"}]},
        "code": 500,
    }


def chosen_protocol(offered: str) -> str:
    """The first of the client's subprotocols that is spoken here, "" when there is none."""
    return next((one for one in (each.strip() for each in offered.split(",")) if one in PROTOCOLS), "")


async def show(request: web.Request, output: AsyncGenerator[bytes, None]) -> web.WebSocketResponse:
    """Upgrade the request and send an output as it comes, until it ends or the client is gone."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, max_msg_size=LARGEST_FRAME, timeout=1.0)
    await socket.prepare(request)
    sending = asyncio.ensure_future(_send_all(socket, output))
    gone = asyncio.ensure_future(_until_closed(socket))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket


async def _send_all(socket: web.WebSocketResponse, output: AsyncGenerator[bytes, None]) -> None:
    await socket.send_bytes(bytes([STDOUT]))
    async with contextlib.aclosing(output):
        async for piece in output:
            await socket.send_bytes(bytes([STDOUT]) + piece)
    await socket.send_bytes(bytes([ERROR]) + json.dumps({"metadata": {}, "status": "Success"}).encode())


async def _until_closed(socket: web.WebSocketResponse) -> None:
    while (await socket.receive()).type in (WSMsgType.BINARY, WSMsgType.TEXT):
        pass


async def serve(request: web.Request, asked: Asked, start: Start) -> web.WebSocketResponse:
    """Upgrade the request and hold the session."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, max_msg_size=LARGEST_FRAME, timeout=1.0)
    await socket.prepare(request)
    await Session(socket, asked).run(start)
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket
