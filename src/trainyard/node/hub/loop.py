"""The hub's conversation with the runner, and the forks.

Messages are JSON with four bytes of length before them; file descriptors travel beside the first byte of the message
that counts them in `fds`. Every message of the runner has `do` and `id`; its answer has `re` and maybe `error`.

    pod        pod, hostname, address, memory: [folder]      namespaces of a pod; `memory` become tmpfs
    unpod      pod
    spawn      container, pod, argv, env, cwd, root, mounts, memory (bytes, 0 for no limit)
                                                             + 1 fd, the log; answered when the program is running
    exec       container                                     + 5 fds for the container's init, see init.py
    signal     container, kill: bool
    own        network, bits                                 its addresses can be listened at
    listen     address, port, udp                            answered with a socket of the pods' network
    socket                                                   answered with an unconnected TCP socket of it
    event      "ready" | "failed" (why) | "exited" (container, code, reason, maybe unsaved: the files that went with it,
               see unsaved.py)                               from the hub, unasked

Rule: whatever fails in one request is its answer, what fails for one container is logged and concerns no other; the hub
itself ends only when the control socket does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from . import calls, memory, reaper  # relative: see the package's docstring
from .channel import Channel, Message
from .container import Ends, Failed, run_init
from .init import Output
from .log_file import LogFile
from .namespaces import Pods


@dataclass(slots=True)
class Starting:
    """A container whose program has not been exec'ed yet; the pipe ends when it is."""

    container: str
    request: int
    pipe: int


class Hub:
    def __init__(self, channel: Channel, pods: Pods | None, groups: memory.Groups) -> None:
        self.channel = channel
        self.pods = pods
        self._groups = groups
        self._limits: dict[str, memory.Limit | None] = {}  # container -> the limit of its memory
        self._inits: dict[int, str] = {}  # pid of an init -> container
        self._starting: dict[int, Starting] = {}  # the same pid -> what is awaited
        self._doors: dict[str, socket.socket] = {}  # container -> where its init hears of further programs
        self._outputs: dict[str, Output] = {}  # container -> what its init left unread
        self._selector = selectors.DefaultSelector()

    def run(self, watcher: int) -> None:
        """Serve until the runner is gone, or the watcher (whose pipe `watcher` then ends)."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (woken, watcher, self.channel.sock.fileno()):
            self._selector.register(fd, selectors.EVENT_READ)
        self.channel.send({"event": "ready"})
        while True:
            for key, _ in self._selector.select():
                if key.fd == watcher:
                    return
                if key.fd == woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(woken, 4096)
                    self._collect()
                elif key.fd == self.channel.sock.fileno():
                    messages = self.channel.receive()
                    if messages is None:
                        return
                    for message, fds in messages:
                        with _isolated():
                            self._answer(message, fds)
                elif key.data is not None:
                    with _isolated():
                        self._started(key.data)

    def end(self) -> None:
        """Kill every container, and write what they had printed but their inits had not passed on."""
        if self.pods:
            for pid in self._inits:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the kernel takes along all that is in the namespace
            for pid in self._inits:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        else:
            reaper.end_all_below(os.getpid())
        for output in self._outputs.values():
            with contextlib.suppress(OSError):
                output.pass_on_the_rest()

    def _answer(self, message: Message, fds: list[int]) -> None:
        if "id" not in message:
            print(f"a message of the node cannot be read: {message}", file=sys.stderr)
            for fd in fds:
                os.close(fd)
            return
        reply: Message | None = {"re": message["id"]}
        passed: list[int] = []
        try:
            reply = self._obey(message, fds, passed)
        except Failed as failure:
            reply = {"re": message["id"], "error": failure.said}
        except Exception as error:
            traceback.print_exc()
            reply = {
                "re": message["id"],
                "error": {"code": 128, "reason": "StartError", "message": f"{message['do']}: {error}"},
            }
        finally:
            for fd in fds:
                os.close(fd)
        if reply is not None:
            self.channel.send(reply, tuple(passed))
        for fd in passed:
            os.close(fd)

    def _obey(self, message: Message, fds: list[int], passed: list[int]) -> Message | None:
        done: Message = {"re": message["id"]}
        match message["do"]:
            case "pod":
                if self.pods:
                    self.pods.add(message["pod"], message["hostname"], message["address"], message["memory"])
            case "unpod":
                if self.pods:
                    self.pods.remove(message["pod"])
            case "spawn":
                self._spawn(message, fds[0])
                return None
            case "exec":
                self._exec(message["container"], fds)
            case "signal":
                self._signal(message["container"], bool(message["kill"]))
            case "own":
                if self.pods:
                    self.pods.own(message["network"], int(message["bits"]))
            case "listen":
                passed.append(_listen(message["address"], int(message["port"]), bool(message["udp"])))
            case "socket":
                passed.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach())
            case other:
                raise ValueError(f"no such request: {other}")
        return done

    def _spawn(self, message: Message, log: int) -> None:
        """Fork the init. The answer follows when its program runs: then the pipe closes, empty."""
        result, report = os.pipe()
        printed, printing = os.pipe()
        os.set_blocking(printed, False)
        door, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        door.setblocking(False)
        output = Output(printed, LogFile(os.dup(log), int(message["log_size"])))
        limit = self._groups.limit(int(message["memory"]))
        # Blocked before the fork: a TERM that comes early waits for the init, and is not lost on a PID 1.
        reaper.block_for_init()
        pid = -1
        try:
            pid = self.pods.fork() if self.pods else os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                run_init(message, Ends(report, inner.detach(), printing, output, limit), self.pods)
        except OSError:  # there was no room for another process
            os.close(result)
            door.close()
            output.close()
            self._groups.remove(limit)
            raise
        finally:
            if pid != 0:
                reaper.unblock_for_init()
                os.close(report)
                os.close(printing)
                inner.close()
        starting = Starting(message["container"], message["id"], result)
        self._inits[pid], self._starting[pid] = message["container"], starting
        self._doors[message["container"]], self._outputs[message["container"]] = door, output
        self._limits[message["container"]] = limit
        self._selector.register(result, selectors.EVENT_READ, starting)

    def _exec(self, container: str, fds: list[int]) -> None:
        door = self._doors.get(container)
        try:
            if door is None:
                raise OSError("it does not run")
            socket.send_fds(door, [b"+"], fds)
        except OSError as error:
            raise Failed(128, "StartError", f"cannot start a program in the container: {error}") from None

    def _forget(self, pid: int) -> tuple[str | None, Message]:
        """The init has ended: its container, and what it said last."""
        container = self._inits.pop(pid, None)
        last: Message = {}
        if container is not None and (door := self._doors.pop(container, None)):
            last = _last_words(door)
            door.close()
            self._groups.remove(self._limits.pop(container, None))
        if container is not None and (output := self._outputs.pop(container, None)):
            output.pass_on_the_rest()
            output.close()
        return container, last

    def _started(self, one: Starting) -> None:
        """The pipe has ended: the program runs, or the pipe says why not. Heard twice when the program is short."""
        pid = next((pid for pid, starting in self._starting.items() if starting is one), None)
        if pid is None:
            return
        del self._starting[pid]
        said = b""
        try:
            while piece := os.read(one.pipe, 65536):
                said += piece
        finally:
            self._selector.unregister(one.pipe)
            os.close(one.pipe)
        reply: Message = {"re": one.request}
        if said:
            reply["error"] = Failed.read(said).said
            self._forget(pid)  # its end is no news
        self.channel.send(reply)

    def _signal(self, container: str, kill: bool) -> None:
        for pid, name in self._inits.items():
            if name == container:
                # The init must survive: to end what is below it, or to count the files that go. Not before it is one.
                strongest = signal.SIGKILL if self.pods and pid in self._starting else reaper.END_ALL
                os.kill(pid, strongest if kill else signal.SIGTERM)

    def _collect(self) -> None:
        for pid, code in reaper.reap().items():
            if starting := self._starting.get(pid):
                with _isolated():
                    self._started(starting)
            with _isolated():
                self._report_exit(pid, code)

    def _report_exit(self, pid: int, code: int) -> None:
        container = self._inits.get(pid)
        last: Message = {}
        try:
            _, last = self._forget(pid)
            if container is not None and not self.pods:
                # Somebody killed an init: its orphans came to us, and nobody else's did.
                reaper.end_all_below(os.getpid(), spare=frozenset(self._inits))
        finally:  # whatever cannot be cleaned up: that a container has ended is always told
            if container is not None:
                end: Message = {"code": code, "reason": last.pop("reason", "")}
                more: Message = {"unsaved": last} if last.get("files") else {}
                self.channel.send({"event": "exited", "container": container, **end, **more})


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """What fails in here is logged and ends nothing else, unless the control socket is gone."""
    try:
        yield
    except ConnectionError:
        raise
    except Exception:
        traceback.print_exc()


def _last_words(door: socket.socket) -> Message:
    """What an init that has ended wrote into its door, its lines in one; {} for nothing."""
    raw, found = b"", Message()
    with contextlib.suppress(OSError):
        while piece := door.recv(1 << 16):
            raw += piece
    with contextlib.suppress(ValueError, TypeError):  # it was killed on the way
        for line in raw.splitlines():
            found |= json.loads(line)
    return found


def _listen(address: str, port: int, udp: bool) -> int:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    try:
        if not udp:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        if not udp:
            sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock.detach()


def _enter_namespaces() -> None:
    # UTS and IPC too: from a pod's one can only come back to one that belongs to the same user namespace.
    flags = calls.NEWNET | calls.NEWNS | calls.NEWPID | calls.NEWUTS | calls.NEWIPC
    if not calls.LINUX:
        raise OSError("it needs Linux")
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        with contextlib.suppress(PermissionError):
            calls.unshare(flags)
            return
    calls.become_root_of_a_namespace(flags, uid, gid)


def _words(error: OSError) -> str:
    """Why it does not work here, for a person who has never heard of namespaces."""
    if error.errno == errno.ENOSPC:
        return "the kernel's limit of namespaces is reached or nought, see user.max_*_namespaces in sysctl"
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"the kernel does not let this user make namespaces ({error.strerror})"
    return error.strerror or str(error)


def _hub(channel: Channel, namespaces: bool, watcher: int, groups: memory.Groups) -> None:
    """The hub proper, in its own process. Returns when everything should end."""
    try:
        if namespaces:
            calls.die_with_parent(signal.SIGKILL)
            # Disks that are mounted or unmounted later come and go here, too; nothing of ours shows outside.
            calls.mount("none", "/", flags=calls.MS_REC | calls.MS_SLAVE)
        else:
            calls.die_with_parent(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            calls.subreaper()
        hub = Hub(channel, Pods() if namespaces else None, groups)
    except OSError as error:
        channel.send({"event": "failed", "why": _words(error)})
        return
    try:
        with contextlib.suppress(ConnectionError):
            hub.run(watcher)
    finally:
        hub.end()


def main(fd: int, mode: str) -> NoReturn:
    """The watcher: enters the namespaces, forks the hub, waits for it. In shared mode it ends what the hub left."""
    os.set_inheritable(fd, False)
    channel = Channel(socket.socket(fileno=fd))
    namespaces = mode == "namespace"
    with contextlib.suppress(
        OSError, ValueError
    ):  # a few descriptors per pod; programs get the runner's own limit back
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        if namespaces:
            _enter_namespaces()
            calls.die_with_parent(signal.SIGKILL)
        else:
            calls.subreaper()
        for name in (signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
    except OSError as error:
        channel.send({"event": "failed", "why": _words(error)})
        sys.exit(1)
    memory.sweep()
    watched, watching = os.pipe()
    groups = memory.Groups(os.getpid())
    hub = os.fork()
    if hub == 0:
        os.close(watching)
        try:
            _hub(channel, namespaces, watched, groups)
        finally:
            if not namespaces:
                reaper.end_all_below(os.getpid())
            os._exit(0)
    os.close(watched)
    channel.sock.close()
    while os.waitpid(-1, 0)[0] != hub:
        pass
    if not namespaces:
        reaper.end_all_below(os.getpid())
    memory.sweep(os.getpid())
    os._exit(0)
