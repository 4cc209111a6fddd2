"""The node process's client of the supervisor, which starts all processes of pods.

Rules:
- Each request gets one response, in any order; a response with an error is raised as `StartError`.
- When the supervisor has ended, every pending request fails with SandboxError, and `on_lost` is called: the kernel has
  killed all containers.
- This module does not know a pod's spec: argv, env and mounts are computed by its callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainyard.node.sandbox.supervisor_process import SupervisorProcess
from trainyard.node.supervisor.channel import UNREADABLE, Channel

log = logging.getLogger(__name__)

KILLED = 137
_OPEN_FILES_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limit of open files at the start of this program: its API server may raise its own limit, pods get this one."""
_READY_SECONDS = 60.0  # a supervisor that hangs is given up; one that ends is noticed at once. 10 s were too few on a
# machine with eight busy processes for each core


class SandboxError(Exception):
    """The supervisor could not be started, or has ended."""


class StartError(Exception):
    """A container could not be started. `code`, `reason` and `message` are those of its terminated state."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class Mount(msgspec.Struct, frozen=True):
    """Mounts `source` of the host at `target`. `pod_owned`: the pod's own folder, in which mount points may be created.
    `subpath`: a subPath of `source` to mount instead, resolved in the container's init (supervisor/safe_paths.py);
    `create`: create it when missing."""

    source: str
    target: str
    readonly: bool = False
    pod_owned: bool = False
    subpath: str = ""
    create: bool = False


class User(msgspec.Struct, frozen=True):
    """User, group and further groups of a process; the home of the user, "/" if it has none."""

    uid: int
    gid: int
    groups: list[int]
    home: str


class Process(msgspec.Struct, frozen=True):
    """The supervisor's parameters to start one container. `root`: an empty folder for its root file system (namespace
    mode)."""

    container: str
    pod: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    root: str
    mounts: list[Mount] = msgspec.field(default_factory=list)
    memory: int = 0  # limit in bytes, 0 for none
    log_size: int = 0  # maximum size of the log in bytes (supervisor/log_file.py), 0 for no limit
    user: User | None = None  # None: that of the node process


class SandboxCallbacks(NamedTuple):
    """`exited` is called for every container that ends: container, exit code, reason, and the report of its init: the
    files removed with its root folder (supervisor/unsaved_count.py), the output that could not be written
    (`lost_output`, supervisor/log_file.py), and `max_rss`, the largest resident size of a process in bytes.
    `output_lost` is called at the first such output of a container: container, report. `lost` is called when the
    supervisor dies."""

    exited: Callable[[str, int, str, dict[str, Any]], None] = lambda *_: None
    output_lost: Callable[[str, dict[str, Any]], None] = lambda *_: None
    lost: Callable[[], None] = lambda: None


class _Response(NamedTuple):
    """A response without an error: its file descriptors, and to `spawn` the pid of the init."""

    fds: list[int]
    pid: int


class Sandbox:
    """More than 15 methods: one for each request to the supervisor."""

    def __init__(self, mode: str, callbacks: SandboxCallbacks, hidden: Sequence[Path] = ()) -> None:
        """`hidden`: folders that containers see empty (namespace mode)."""
        self.mode = mode
        self._hidden = [str(folder.resolve()) for folder in hidden]
        self._callbacks = callbacks
        self._pending: dict[int, asyncio.Future[_Response]] = {}
        self._request_id = 0
        self._send_lock = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None  # set when the socket is writable
        self._ready: asyncio.Future[None] | None = None
        self.supervisor: SupervisorProcess | None = None
        self._channel: Channel | None = None
        self._closing = False
        self.changes_users = False  # whether programs can have another user than the node process

    async def start(self, supervisor: SupervisorProcess) -> None:
        """Wait until the supervisor is ready; it ends with this Sandbox. Raises SandboxError when it does not
        work."""
        self.supervisor, self._channel = supervisor, supervisor.channel
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        loop.add_reader(supervisor.channel.sock, self._receive)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._ready
        except TimeoutError:
            await self.close()
            raise SandboxError(
                f"the supervisor sent nothing for {_READY_SECONDS:.0f} s, see {supervisor.log}"
            ) from None
        except SandboxError:
            await self.close()
            raise

    async def close(self) -> None:
        """End the supervisor and all containers: it reads the end of its socket and exits."""
        self._closing = True
        self._close_channel()
        if self.supervisor:
            await asyncio.to_thread(self.supervisor.close)

    def _close_channel(self) -> None:
        if self._channel:
            asyncio.get_running_loop().remove_reader(self._channel.sock)
            asyncio.get_running_loop().remove_writer(self._channel.sock)
            self._channel.sock.close()
            self._channel = None
        if self._writable:
            _resolve(self._writable)  # the sender then finds the channel closed
        error = SandboxError("the supervisor of the pods has ended")
        if self._ready and not self._ready.done():
            self._ready.set_exception(SandboxError("the supervisor ended before it was ready"))
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
        self._pending.clear()

    def _receive(self) -> None:
        if self._channel is None:
            return
        messages = self._channel.receive()
        if messages is None:
            self._close_channel()
            if not self._closing:
                self._callbacks.lost()
            return
        for message, fds in messages:
            try:
                self._handle(message, fds)
            except Exception:  # only this message is dropped: exits of other containers may follow it
                log.exception("a message of the supervisor is invalid message=%.200s", message)

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        if "re" in message:
            self._handle_answer(message, fds)
        elif message["event"] == UNREADABLE:
            log.error("a message of the supervisor cannot be parsed text=%s", message["text"])
        elif message["event"] == "exited":
            code, reason = int(message["code"]), str(message["reason"])
            self._callbacks.exited(message["container"], code, reason, message.get("report") or {})
        elif message["event"] == "output_loss":
            self._callbacks.output_lost(message["container"], message["report"])
        elif self._ready and not self._ready.done():
            if message["event"] == "ready":
                self.changes_users = bool(message["changes_users"])
                self._ready.set_result(None)
            else:
                self._ready.set_exception(SandboxError(message["why"]))

    def _handle_answer(self, message: dict[str, Any], fds: list[int]) -> None:
        future = self._pending.pop(message["re"], None)
        if future is None or future.done():
            for fd in fds:
                os.close(fd)
            return
        if error := message.get("error"):
            future.set_exception(_start_failure(error))
        else:
            future.set_result(_Response(fds, int(message.get("pid") or 0)))

    async def _request(self, operation: str, fds: tuple[int, ...] = (), **fields: Any) -> _Response:
        if self._channel is None:
            raise SandboxError("the supervisor of the pods has ended")
        self._request_id += 1
        request_id = self._request_id
        future: asyncio.Future[_Response] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        try:
            async with self._send_lock:
                await self._send(Channel.pack({"do": operation, "id": request_id, **fields}, len(fds)), fds)
            return await future
        finally:
            self._pending.pop(request_id, None)

    async def _send(self, message: bytes, fds: tuple[int, ...]) -> None:
        """Send the message, waiting for the socket to become writable; `fds` are sent with its first byte."""
        loop = asyncio.get_running_loop()
        remaining = memoryview(message)  # a view: a large message is not copied at each partial send
        while self._channel is not None:
            sock = self._channel.sock
            try:
                sent = socket.send_fds(sock, [remaining], fds) if fds else sock.send(remaining)
            except BlockingIOError:
                self._writable = loop.create_future()
                loop.add_writer(sock, _resolve, self._writable)
                try:
                    await self._writable
                finally:
                    if self._channel is not None:
                        loop.remove_writer(sock)
                continue
            except OSError as error:
                raise SandboxError(f"the supervisor of the pods has ended: {error}") from None
            remaining, fds = remaining[sent:], ()
            if not remaining:
                return

    async def add_pod(self, pod: str, hostname: str, address: str, memory: Mapping[str, int]) -> None:
        """Create the pod's network namespace, hostname and memory-backed folders. Raises SandboxError."""
        await self._request("add_pod", pod=pod, hostname=hostname, address=address, memory=memory)

    async def remove_pod(self, pod: str) -> None:
        """Remove the pod's namespaces; no error if they are gone."""
        with contextlib.suppress(SandboxError, StartError):
            await self._request("remove_pod", pod=pod)

    async def spawn(self, process: Process, log: int) -> int:
        """Start a container; returns when its program runs, with the pid of its init (0: unknown). `log`: a descriptor
        open for reading and appending, which the caller closes. Raises StartError when it cannot be started,
        SandboxError."""
        response = await self._request(
            "spawn", (log,), **_credentials(), **msgspec.to_builtins(process), hidden=self._hidden
        )
        return response.pid

    async def execute(
        self, process: Process, streams: tuple[int, int, int, int], tty: bool = False, timeout: float = 0.0
    ) -> None:
        """Start another program (exec) in a running container. `streams`: its stdin, stdout and stderr, and the pipe
        for its result (supervisor/init.py). `timeout`: seconds after which it is killed, 0 for none. Raises StartError,
        SandboxError."""
        spec = {**_credentials(), "argv": process.argv, "env": process.env, "cwd": process.cwd, "tty": tty}
        spec |= {"timeout": timeout, "user": msgspec.to_builtins(process.user)}
        with tempfile.TemporaryFile() as file:  # an unnamed file: the spec may be larger than a message
            file.write(json.dumps(spec).encode())
            file.flush()
            await self._request("exec", (file.fileno(), *streams), container=process.container)

    async def signal(self, container: str, kill: bool) -> None:
        """Send SIGTERM, or SIGKILL with `kill`, to the container; no error if it has ended."""
        with contextlib.suppress(SandboxError, StartError):
            await self._request("signal", container=container, kill=kill)

    async def add_local_route(self, network: str) -> None:
        """Make the addresses of `network` (such as 10.96.0.0/12) local in the supervisor's network namespace."""
        address, _, bits = network.partition("/")
        await self._request("add_route", network=address, bits=int(bits))

    async def listen(self, address: str, port: int, udp: bool = False) -> socket.socket:
        """A listening (or UDP) socket in the pods' network. Raises StartError, SandboxError."""
        (fd,) = (await self._request("listen", address=address, port=port, udp=udp)).fds
        return _nonblocking_socket(fd)

    async def socket(self) -> socket.socket:
        """An unconnected TCP socket in the pods' network. Raises StartError, SandboxError."""
        (fd,) = (await self._request("socket")).fds
        return _nonblocking_socket(fd)


def _start_failure(error: Any) -> StartError:
    """The error of a response as `StartError`; an error that cannot be read becomes a StartError, too."""
    try:
        return StartError(int(error["code"]), str(error["reason"]), str(error["message"]))
    except (KeyError, TypeError, ValueError):
        return StartError(128, "StartError", f"the response of the supervisor cannot be parsed: {str(error)[:200]}")


def _credentials() -> dict[str, Any]:
    """User, group and limit of open files for programs: those of the node process."""
    return {"uid": os.getuid(), "gid": os.getgid(), "files": _OPEN_FILES_LIMIT}


def _nonblocking_socket(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return sock


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
