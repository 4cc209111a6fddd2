"""One exec session: a program in a running container on one side, a WebSocket with the kubelet's channels on the other.

Each frame is one byte with the channel, then the payload: 0 stdin, 1 stdout, 2 stderr, 3 the result (a Status), 4 a new
size of the terminal (JSON). In the subprotocol v5 the frame [255, 0] closes stdin.

Rules:
- Payloads are forwarded unchanged, with back-pressure in both directions.
- The session is over when the program has ended and its output until then has been sent. A daemon that keeps the pipes
  open does not delay this.
- When the client disconnects, only the streams are closed: the program belongs to the container and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import struct
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import WSMsgType, web

from trainyard.node.sandbox.exec_result import ExecResult, internal_error, read_to_end, resolve
from trainyard.node.sandbox.supervisor_client import SandboxError, StartError
from trainyard.objects import Json

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
LARGEST_FRAME = 16 << 20
_READ_SIZE = 1 << 15
_MAX_BYTES_AFTER_EXIT = 1 << 20  # bytes: a pipe may hold as much when its program has ended
_TERMINAL_DRAIN_SECONDS = 0.05  # seconds: output of a terminal can be read only a moment after its write

Streams = tuple[int, int, int, int]  # stdin, stdout, stderr of the program, and the pipe for its result
Start = Callable[[Streams], Awaitable[None]]


class ExecRequest(msgspec.Struct, frozen=True):
    """The command and the streams of an exec request."""

    command: list[str]
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str], command: list[str]) -> ExecRequest:
        """From the query parameters of the kubelet API. Raises ValueError with the kubelet's messages."""

        def is_set(name: str) -> bool:
            return query.get(name, "").lower() in ("1", "true")

        tty = is_set("tty")
        request = cls(command, is_set("input"), is_set("output"), is_set("error") and not tty, tty)
        if not command or not command[0]:
            raise ValueError("you must specify at least 1 command for the container")
        if not (request.stdin or request.stdout or request.stderr):
            raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
        return request


class SessionStreams(msgspec.Struct):
    """File descriptors of a session's streams. `program_fds` go to the program; all others are the ends that the
    session keeps: the `result` pipe, `stdin` and `terminal` (-1 for none), `outputs`."""

    program_fds: Streams
    result: int
    stdin: int = -1
    outputs: dict[int, int] = msgspec.field(default_factory=dict)  # file descriptor -> channel
    terminal: int = -1

    def close_program_fds(self) -> None:
        """Close the program's ends: the program has its own copies."""
        _close(*self.program_fds)

    def close(self) -> None:
        """Close all file descriptors of the session."""
        _close(self.result, self.stdin, self.terminal, *(fd for fd in self.outputs if fd != self.terminal))
        self.stdin = -1

    def close_stdin(self) -> None:
        """Close standard input: the program reads the end of the file. Further calls do nothing."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


def _close(*fds: int) -> None:
    for fd in set(fds):
        if fd >= 0:
            os.close(fd)


def open_streams(request: ExecRequest) -> SessionStreams:
    """Open pipes, or a terminal; streams that are not requested are /dev/null. The session's ends are non-blocking."""
    result_read, result_write = os.pipe()
    if request.tty:
        terminal, program_fd = os.openpty()
        ends = SessionStreams(
            (program_fd, program_fd, program_fd, result_write),
            result_read,
            terminal=terminal,
            outputs={terminal: STDOUT} if request.stdout else {},
        )
        ends.stdin = os.dup(terminal) if request.stdin else -1
    else:
        devnull = os.open(os.devnull, os.O_RDWR)
        stdin_read, stdin_write = os.pipe() if request.stdin else (devnull, -1)
        program_fds, outputs = [stdin_read], {}
        for channel, requested in ((STDOUT, request.stdout), (STDERR, request.stderr)):
            fd, write_fd = os.pipe() if requested else (-1, devnull)
            program_fds.append(write_fd)
            if requested:
                outputs[fd] = channel
        if devnull not in program_fds:
            os.close(devnull)
        ends = SessionStreams(
            (program_fds[0], program_fds[1], program_fds[2], result_write), result_read, stdin_write, outputs
        )
    for fd in (result_read, ends.stdin, *ends.outputs):
        if fd >= 0:
            os.set_blocking(fd, False)
    return ends


class Socket(Protocol):
    """What a session needs of a WebSocket."""

    async def send_bytes(self, data: bytes) -> None:
        """Send one binary message."""

    async def receive(self) -> Any:
        """The next WebSocket message (aiohttp.WSMessage), of type CLOSED after the last one."""


class ExecSession:
    """One exec over a WebSocket: starts the program and forwards its streams."""

    def __init__(self, socket: Socket, request: ExecRequest) -> None:
        self._socket, self._request = socket, request
        self._program_ended = asyncio.Event()

    async def run(self, start: Start) -> None:
        """Start the program and forward its streams until it ends or the client disconnects."""
        ends = open_streams(self._request)
        try:
            try:
                # As the kubelet does: an empty frame means that the streams are open.
                await self._send(STDOUT if self._request.stdout else STDERR if self._request.stderr else ERROR, b"")
                await start(ends.program_fds)
            except (StartError, SandboxError) as error:
                await self._send(ERROR, json.dumps(internal_error(str(error))).encode())
                return
            finally:
                ends.close_program_fds()
            await self._serve(ends)
        except ConnectionError:
            pass  # the client has disconnected, and the program continues without it
        finally:
            ends.close()

    async def _serve(self, ends: SessionStreams) -> None:
        receiving = asyncio.ensure_future(self._receive_frames(ends))
        forwarding = asyncio.ensure_future(self._forward_output(ends))
        try:
            await asyncio.wait((receiving, forwarding), return_when=asyncio.FIRST_COMPLETED)
            if forwarding.done():
                await self._send(ERROR, json.dumps(forwarding.result()).encode())
            elif (error := receiving.exception()) is not None:
                raise error
        finally:
            for task in (receiving, forwarding):
                task.cancel()
            await asyncio.gather(receiving, forwarding, return_exceptions=True)

    async def _forward_output(self, ends: SessionStreams) -> Json:
        """Forward the output of the program until it ends; returns the Status of its end."""
        outputs = [asyncio.ensure_future(self._copy_output(fd, channel)) for fd, channel in ends.outputs.items()]
        try:
            result = await read_to_end(ends.result)
            self._program_ended.set()
            await asyncio.gather(*outputs)
        finally:
            for task in outputs:
                task.cancel()
        outcome = ExecResult.read(result)
        if outcome.failed:
            await self._send_start_error(outcome.failed)
        return outcome.status(self._request.command)

    async def _send_start_error(self, message: str) -> None:
        """Send the reason why a program could not be run as output: clients show only the exit code of the Status."""
        if self._request.stderr:
            await self._send(STDERR, f"{message}\n".encode())
        elif self._request.tty and self._request.stdout:
            await self._send(STDOUT, f"{message}\r\n".encode())

    async def _copy_output(self, fd: int, channel: int) -> None:
        remaining = _MAX_BYTES_AFTER_EXIT
        while remaining > 0:
            ended = self._program_ended.is_set()  # checked before reading: output written before the end is read
            try:
                piece = os.read(fd, _READ_SIZE)
            except BlockingIOError:
                if ended and not (self._request.tty and await self._readable(fd, _TERMINAL_DRAIN_SECONDS)):
                    return
                if not ended:
                    await self._readable(fd, None)
                continue
            except OSError:  # EIO: no process has the terminal open any more
                return
            if not piece:
                return
            remaining -= len(piece) if ended else 0
            await self._send(channel, piece)

    async def _readable(self, fd: int, seconds: float | None) -> bool:
        """Wait until `fd` is readable, the program has ended, or `seconds` are over. Returns whether it is readable."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, resolve, readable)
        ended = asyncio.ensure_future(self._program_ended.wait()) if seconds is None else None
        try:
            await asyncio.wait(
                [waiter for waiter in (readable, ended) if waiter], timeout=seconds, return_when="FIRST_COMPLETED"
            )
            return readable.done()
        finally:
            loop.remove_reader(fd)
            if ended:
                ended.cancel()

    async def _receive_frames(self, ends: SessionStreams) -> None:
        """Handle the frames of the client until it disconnects."""
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
                await self._write_stdin(ends, frame[1:])
            elif channel == RESIZE and ends.terminal >= 0:
                _resize(ends.terminal, frame[1:])
            elif channel == CLOSE and frame[1:] == bytes([STDIN]):
                ends.close_stdin()

    async def _write_stdin(self, ends: SessionStreams, piece: bytes) -> None:
        loop = asyncio.get_running_loop()
        while piece:
            try:
                piece = piece[os.write(ends.stdin, piece) :]
            except BlockingIOError:
                writable: asyncio.Future[None] = loop.create_future()
                loop.add_writer(ends.stdin, resolve, writable)
                try:
                    await writable
                finally:
                    loop.remove_writer(ends.stdin)
            except OSError:  # the program has closed its stdin
                ends.close_stdin()
                return

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)


def _resize(terminal: int, payload: bytes) -> None:
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, struct.error, OSError):
        size = json.loads(payload)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", int(size["Height"]), int(size["Width"]), 0, 0))


def chosen_protocol(offered: str) -> str:
    """The first of the client's subprotocols that is supported, "" when none is."""
    return next((protocol for protocol in (name.strip() for name in offered.split(",")) if protocol in PROTOCOLS), "")


async def stream_output(request: web.Request, output: AsyncGenerator[bytes, None]) -> web.WebSocketResponse:
    """Upgrade the request and send `output` on the stdout channel until it ends or the client disconnects."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, max_msg_size=LARGEST_FRAME, timeout=1.0)
    await socket.prepare(request)
    sending = asyncio.ensure_future(_send_all(socket, output))
    closed = asyncio.ensure_future(_until_closed(socket))
    try:
        await asyncio.wait((sending, closed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, closed):
            task.cancel()
        await asyncio.gather(sending, closed, return_exceptions=True)
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


async def serve(request: web.Request, exec_request: ExecRequest, start: Start) -> web.WebSocketResponse:
    """Upgrade the request to a WebSocket and run the session."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, max_msg_size=LARGEST_FRAME, timeout=1.0)
    await socket.prepare(request)
    await ExecSession(socket, exec_request).run(start)
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket
