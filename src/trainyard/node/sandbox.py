"""The runner's side of the hub: the only place from which processes are started.

Rules:
- One request, one answer, in any order; an answer with an error is raised as `Failed`.
- When the hub is gone, every open request fails, and every container is reported as killed: the kernel has ended them.
- Nothing here knows a pod's spec: argv, env and mounts come ready-made."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainyard.node.helper_process import HelperProcess
from trainyard.node.hub.channel import UNREADABLE, Channel

log = logging.getLogger(__name__)

KILLED = 137
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""As the person had it when this program began: the API server in it may raise its own, pods keep theirs."""
_PATIENCE = 10.0  # seconds for a hub to say that it is ready


class SandboxError(Exception):
    """The hub could not be started, or is gone."""


class Failed(Exception):
    """A container could not be started; the words are those of its status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class Mount(msgspec.Struct, frozen=True):
    """`source` on the host seen at `target`. `ours`: a folder of the pod's own, in which mount points may be made.
    `inner`: a path beneath `source` to mount in its place, resolved there (hub/beneath.py); `make`: made if missing."""

    source: str
    target: str
    readonly: bool = False
    ours: bool = False
    inner: str = ""
    make: bool = False


class Process(msgspec.Struct, frozen=True):
    """What the hub needs to start one container. `root` is an empty folder to build on (namespace mode)."""

    container: str
    pod: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    root: str
    mounts: list[Mount] = msgspec.field(default_factory=list)
    memory: int = 0  # limit in bytes, 0 for none
    log_size: int = 0  # bytes that the log takes at most (hub/log_file.py), 0 for no bound


class Sandbox:
    """`exited` hears of every program that ran: container, exit code, reason, and which files went with its root folder
    (hub/unsaved.py, {} for none). `lost` is called when the hub dies."""

    def __init__(
        self,
        mode: str,
        exited: Callable[[str, int, str, dict[str, Any]], None],
        lost: Callable[[], None],
        hidden: Sequence[Path] = (),
    ) -> None:
        """`hidden`: folders that containers see empty (namespace mode)."""
        self.mode = mode
        self._hidden = [str(folder.resolve()) for folder in hidden]
        self._exited, self._lost = exited, lost
        self._waiting: dict[int, asyncio.Future[list[int]]] = {}
        self._serial = 0
        self._sending = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None  # what a sender waits for
        self._ready: asyncio.Future[None] | None = None
        self.helper: HelperProcess | None = None
        self._channel: Channel | None = None
        self._closing = False

    async def start(self, helper: HelperProcess) -> None:
        """Wait until the helper is ready; it ends with this Sandbox. Raises SandboxError when it cannot work here."""
        self.helper, self._channel = helper, helper.channel
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        loop.add_reader(helper.channel.sock, self._hear)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._ready
        except TimeoutError:
            await self.close()
            raise SandboxError(f"the helper said nothing for {_PATIENCE:.0f} s, see {helper.log}") from None
        except SandboxError:
            await self.close()
            raise

    async def close(self) -> None:
        """End everything: the hub sees the end of its socket, and dies with all it owns."""
        self._closing = True
        self._hang_up()
        if self.helper:
            await asyncio.to_thread(self.helper.close)

    def _hang_up(self) -> None:
        if self._channel:
            asyncio.get_running_loop().remove_reader(self._channel.sock)
            asyncio.get_running_loop().remove_writer(self._channel.sock)
            self._channel.sock.close()
            self._channel = None
        if self._room:
            _wake(self._room)  # it finds the channel gone
        gone = SandboxError("the helper process that runs the pods is gone")
        if self._ready and not self._ready.done():
            self._ready.set_exception(SandboxError("the helper ended before it was ready"))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(gone)
        self._waiting.clear()

    def _hear(self) -> None:
        if self._channel is None:
            return
        messages = self._channel.receive()
        if messages is None:
            self._hang_up()
            if not self._closing:
                self._lost()
            return
        for message, fds in messages:
            try:
                self._take(message, fds)
            except Exception:  # of this message: the exits of other containers may stand behind it
                log.exception("a message of the helper could not be used message=%.200s", message)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if "re" in message:
            self._settle(message, fds)
        elif message["event"] == UNREADABLE:
            log.error("a message of the helper cannot be read text=%s", message["text"])
        elif message["event"] == "exited":
            code, reason = int(message["code"]), str(message["reason"])
            self._exited(message["container"], code, reason, message.get("unsaved") or {})
        elif self._ready and not self._ready.done():
            if message["event"] == "ready":
                self._ready.set_result(None)
            else:
                self._ready.set_exception(SandboxError(message["why"]))

    def _settle(self, message: dict[str, Any], fds: list[int]) -> None:
        waiting = self._waiting.pop(message["re"], None)
        if waiting is None or waiting.done():
            for fd in fds:
                os.close(fd)
            return
        if error := message.get("error"):
            waiting.set_exception(_failed(error))
        else:
            waiting.set_result(fds)

    async def _ask(self, do: str, fds: tuple[int, ...] = (), **words: Any) -> list[int]:
        if self._channel is None:
            raise SandboxError("the helper process that runs the pods is gone")
        self._serial += 1
        serial = self._serial
        waiting: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting[serial] = waiting
        try:
            async with self._sending:
                await self._send(Channel.pack({"do": do, "id": serial, **words}, len(fds)), fds)
            return await waiting
        finally:
            self._waiting.pop(serial, None)

    async def _send(self, message: bytes, fds: tuple[int, ...]) -> None:
        """Descriptors go with the first byte, once there is room for it; the rest follows as the hub reads."""
        loop = asyncio.get_running_loop()
        raw = memoryview(message)  # a message of megabytes is not copied for each piece that the hub reads
        while self._channel is not None:
            sock = self._channel.sock
            try:
                sent = socket.send_fds(sock, [raw], fds) if fds else sock.send(raw)
            except BlockingIOError:
                self._room = loop.create_future()
                loop.add_writer(sock, _wake, self._room)
                try:
                    await self._room
                finally:
                    if self._channel is not None:
                        loop.remove_writer(sock)
                continue
            except OSError as error:
                raise SandboxError(f"the helper process that runs the pods is gone: {error}") from None
            raw, fds = raw[sent:], ()
            if not raw:
                return

    async def add_pod(self, pod: str, hostname: str, address: str, memory: list[str]) -> None:
        await self._ask("pod", pod=pod, hostname=hostname, address=address, memory=memory)

    async def remove_pod(self, pod: str) -> None:
        with contextlib.suppress(SandboxError, Failed):
            await self._ask("unpod", pod=pod)

    async def spawn(self, process: Process, log: int) -> None:
        """Returns when the program runs; raises Failed when it cannot. `log`, open for reading and
        appending, stays the caller's to close."""
        await self._ask("spawn", (log,), **_who(), **msgspec.to_builtins(process), hidden=self._hidden)

    async def execute(self, process: Process, streams: tuple[int, int, int, int], tty: bool) -> None:
        """Start one more program in a container that runs; what becomes of it is told in the last of `streams`."""
        spec = {**_who(), "argv": process.argv, "env": process.env, "cwd": process.cwd, "tty": tty}
        with tempfile.TemporaryFile() as file:  # has no name, and any size
            file.write(json.dumps(spec).encode())
            file.flush()
            await self._ask("exec", (file.fileno(), *streams), container=process.container)

    async def signal(self, container: str, kill: bool) -> None:
        with contextlib.suppress(SandboxError, Failed):
            await self._ask("signal", container=container, kill=kill)

    async def own(self, network: str) -> None:
        """The addresses of that network (10.96.0.0/12) belong to the runner's side of the pods' network."""
        address, _, bits = network.partition("/")
        await self._ask("own", network=address, bits=int(bits))

    async def listen(self, address: str, port: int, udp: bool = False) -> socket.socket:
        """A listening (or UDP) socket in the pods' network, served from here."""
        (fd,) = await self._ask("listen", address=address, port=port, udp=udp)
        return _adopt(fd)

    async def socket(self) -> socket.socket:
        """A TCP socket in the pods' network, to connect from here."""
        (fd,) = await self._ask("socket")
        return _adopt(fd)


def _failed(error: Any) -> Failed:
    """The helper's words for a container that could not be started, whatever they are."""
    try:
        return Failed(int(error["code"]), str(error["reason"]), str(error["message"]))
    except (KeyError, TypeError, ValueError):
        return Failed(128, "StartError", f"the helper's answer cannot be read: {str(error)[:200]}")


def _who() -> dict[str, Any]:
    """As whom programs run, and with how many open files: as the runner."""
    return {"uid": os.getuid(), "gid": os.getgid(), "files": _FILES}


def _adopt(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return sock


def _wake(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)
