"""The protocol between the node process and the supervisor, and the forks of inits.

Messages are JSON with four bytes of length before them; file descriptors are sent with the first byte of the message,
whose `fds` is their number. Every request of the node process has `do` and `id`; its response has `re` and maybe
`error`.

    add_pod    pod, hostname, address, memory: {folder: group}    create a pod's namespaces; tmpfs at folders
    remove_pod pod
    spawn      container, pod, argv, env, cwd, root, mounts, memory (bytes, 0 for no limit), user (uid, gid, groups;
               None for that of the node; only if the event "ready" says `changes_users`)
                                                             + 1 fd, the log; answered when the program is running,
                                                             with the init's `pid` as the node process sees it
    exec       container                                     + 5 fds for the container's init, see init.py
    signal     container, kill: bool
    add_route  network, bits                                 makes its addresses local
    listen     address, port, udp                            answered with a socket of the pods' network
    socket                                                   answered with an unconnected TCP socket of it
    event      "ready" | "failed" (why) | "output_loss" (container, report: the first output that could not be
               written, log_file.py) | "exited" (container, code, reason, report: the last messages of its init, merged:
               the files that went with it, unsaved_count.py; lost_output: the reports on all output that could not be
               written; max_rss: the largest resident size of one of its processes, bytes. An init that was killed has
               not written it, and its reason is ContainerStatusUnknown)  from the supervisor, unasked

Rule: a failure in one request is sent as its response; a failure for one container is logged and does not affect
others; the supervisor itself ends only with the control socket."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from . import memory, reaper, syscalls  # relative: see the package's docstring
from .channel import Channel, Message
from .container import Failed, InitDescriptors, run_init
from .init import Output
from .init_socket import InitSocket
from .log_file import LimitedLogFile
from .namespaces import PodNamespaces, enter_namespaces


class StartingContainer(NamedTuple):
    """A container whose program has not been exec'ed yet; exec closes the pipe. `request`: id of the spawn request."""

    container: str
    request: int
    pipe: int


class Supervisor:
    """The main loop of the supervisor: starts containers on request and reports their exits."""

    def __init__(self, channel: Channel, pods: PodNamespaces | None, groups: memory.Cgroups) -> None:
        self.channel = channel
        self.pods = pods
        self._groups = groups
        self._limits: dict[str, memory.Limit | None] = {}  # container -> its memory limit
        self._inits: dict[int, str] = {}  # pid of an init -> container
        self._starting: dict[int, StartingContainer] = {}  # pid of an init -> its start in progress
        self._exec_sockets: dict[str, InitSocket] = {}  # container -> socket for exec requests to its init
        self._outputs: dict[str, Output] = {}  # container -> its output pipe, to read what its init has not
        self._selector = selectors.DefaultSelector()

    def run(self, watcher: int) -> None:
        """Serve until the node process or the watcher has ended. `watcher`: a pipe that closes when the latter ends."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (woken, watcher, self.channel.sock.fileno()):
            self._selector.register(fd, selectors.EVENT_READ)
        self.channel.send({"event": "ready", "changes_users": bool(self.pods) and syscalls.may_change_users()})
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
                        with _logged_errors():
                            self._answer_request(message, fds)
                elif isinstance(key.data, InitSocket):
                    with _logged_errors():
                        self._read_messages(key.data)
                elif key.data is not None:
                    with _logged_errors():
                        self._started(key.data)

    def end(self) -> None:
        """Kill every container, and write the output that their inits have not written to the logs."""
        if self.pods:
            for pid in self._inits:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the kernel kills all processes in its pid namespace
            for pid in self._inits:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        else:
            reaper.end_all_below(os.getpid())
        for output in self._outputs.values():
            with contextlib.suppress(OSError):
                output.copy_rest()

    def _answer_request(self, message: Message, fds: list[int]) -> None:
        if "id" not in message:
            print(f"a message of the node cannot be parsed: {message}", file=sys.stderr)
            for fd in fds:
                os.close(fd)
            return
        reply: Message | None = {"re": message["id"]}
        reply_fds: list[int] = []
        try:
            reply = self._handle_request(message, fds, reply_fds)
        except Failed as failure:
            reply = {"re": message["id"], "error": failure.fields}
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)  # the module `traceback` is slow to import
            reply = {
                "re": message["id"],
                "error": {"code": 128, "reason": "StartError", "message": f"{message['do']}: {error}"},
            }
        finally:
            for fd in fds:
                os.close(fd)
        if reply is not None:
            self.channel.send(reply, tuple(reply_fds))
        for fd in reply_fds:
            os.close(fd)

    def _handle_request(self, message: Message, fds: list[int], reply_fds: list[int]) -> Message | None:
        reply: Message = {"re": message["id"]}
        match message["do"]:
            case "add_pod":
                if self.pods:
                    self.pods.add(message["pod"], message["hostname"], message["address"], message["memory"])
            case "remove_pod":
                if self.pods:
                    self.pods.remove(message["pod"])
            case "spawn":
                self._spawn(message, fds[0])
                return None
            case "exec":
                self._exec(message["container"], fds)
            case "signal":
                self._signal(message["container"], bool(message["kill"]))
            case "add_route":
                if self.pods:
                    self.pods.add_local_route(message["network"], int(message["bits"]))
            case "listen":
                reply_fds.append(_listen(message["address"], int(message["port"]), bool(message["udp"])))
            case "socket":
                reply_fds.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach())
            case unknown:
                raise ValueError(f"no such request: {unknown}")
        return reply

    def _spawn(self, message: Message, log: int) -> None:
        """Fork the init. The response is sent when its program runs: then the report pipe is closed, empty."""
        report_read, report_write = os.pipe()
        output_read, output_write = os.pipe()
        os.set_blocking(output_read, False)
        exec_socket, init_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        exec_socket.setblocking(False)
        output = Output(output_read, LimitedLogFile(os.dup(log), int(message["log_size"])))
        limit = self._groups.limit(int(message["memory"]))
        # Blocked before the fork: an early SIGTERM stays pending until the init handles it; PID 1 would ignore it.
        reaper.block_for_init()
        pid = -1
        try:
            pid = self.pods.fork() if self.pods else os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                run_init(
                    message, InitDescriptors(report_write, init_end.detach(), output_write, output, limit), self.pods
                )
        except OSError:  # fork failed: EAGAIN or ENOMEM
            os.close(report_read)
            exec_socket.close()
            output.close()
            self._groups.remove(limit)
            raise
        finally:
            if pid != 0:
                reaper.unblock_for_init()
                os.close(report_write)
                os.close(output_write)
                init_end.close()
        starting = StartingContainer(message["container"], message["id"], report_read)
        self._inits[pid], self._starting[pid] = message["container"], starting
        init_socket = InitSocket(message["container"], exec_socket)
        self._exec_sockets[message["container"]], self._outputs[message["container"]] = init_socket, output
        self._selector.register(exec_socket, selectors.EVENT_READ, init_socket)
        self._limits[message["container"]] = limit
        self._selector.register(report_read, selectors.EVENT_READ, starting)

    def _exec(self, container: str, fds: list[int]) -> None:
        init_socket = self._exec_sockets.get(container)
        try:
            if init_socket is None:
                raise OSError("it is not running")
            socket.send_fds(init_socket.sock, [b"+"], fds)
        except OSError as error:
            raise Failed(128, "StartError", f"cannot start a program in the container: {error}") from None

    def _remove_init(self, pid: int) -> tuple[str | None, Message]:
        """Remove an init that has ended. Returns its container (None if unknown) and the message it wrote last."""
        container = self._inits.pop(pid, None)
        last_message: Message = {}
        if container is not None and (init_socket := self._exec_sockets.pop(container, None)):
            self._stop_reading(init_socket)
            init_socket.read()
            last_message = init_socket.message
            init_socket.sock.close()
            self._groups.remove(self._limits.pop(container, None))
        if container is not None and (output := self._outputs.pop(container, None)):
            output.copy_rest()
            output.close()
            if output.log.lost.bytes:  # of the rest; the init has reported what it has lost itself
                last_message["lost_output"] = [*last_message.get("lost_output", ()), output.log.lost.message()]
        return container, last_message

    def _read_messages(self, init_socket: InitSocket) -> None:
        """Read what an init that runs has written, and report its first loss of output."""
        if init_socket.container not in self._exec_sockets:
            return
        if not init_socket.read():
            self._stop_reading(init_socket)
        if report := init_socket.message.pop("output_loss", None):
            self.channel.send({"event": "output_loss", "container": init_socket.container, "report": report})

    def _stop_reading(self, init_socket: InitSocket) -> None:
        with contextlib.suppress(KeyError):  # the init has closed its end before
            self._selector.unregister(init_socket.sock)

    def _started(self, awaited: StartingContainer) -> None:
        """The report pipe is closed: the program runs, or the report has its error. Maybe called twice."""
        pid = next((pid for pid, starting in self._starting.items() if starting is awaited), None)
        if pid is None:
            return
        del self._starting[pid]
        report = b""
        try:
            while piece := os.read(awaited.pipe, 65536):
                report += piece
        finally:
            self._selector.unregister(awaited.pipe)
            os.close(awaited.pipe)
        reply: Message = {"re": awaited.request}
        if report:
            reply["error"] = Failed.read(report).fields
            self._remove_init(pid)  # the exit of this init is not reported
        elif init_socket := self._exec_sockets.get(awaited.container):
            init_socket.read()
            reply["pid"] = init_socket.message.pop("pid", 0)  # the init wrote it before its program ran
        self.channel.send(reply)

    def _signal(self, container: str, kill: bool) -> None:
        for pid, name in self._inits.items():
            if name == container:
                # SIGKILL only before the init runs: later it must survive to end its descendants and to count files.
                kill_signal = signal.SIGKILL if self.pods and pid in self._starting else reaper.END_ALL
                os.kill(pid, kill_signal if kill else signal.SIGTERM)

    def _collect(self) -> None:
        for pid, code in reaper.reap().items():
            if starting := self._starting.get(pid):
                with _logged_errors():
                    self._started(starting)
            with _logged_errors():
                self._report_exit(pid, code)

    def _report_exit(self, pid: int, code: int) -> None:
        container = self._inits.get(pid)
        last_message: Message = {}
        try:
            _, last_message = self._remove_init(pid)
            if container is not None and not self.pods:
                # When an init is killed, its orphans become children of the supervisor; those of running inits do not.
                reaper.end_all_below(os.getpid(), spare=frozenset(self._inits))
        finally:  # the exit of a container is reported even when the cleanup fails
            if container is not None:
                was_killed = code == 128 + signal.SIGKILL and "max_rss" not in last_message
                reason = last_message.pop("reason", "ContainerStatusUnknown" if was_killed else "")
                self.channel.send(
                    {"event": "exited", "container": container, "code": code, "reason": reason, "report": last_message}
                )


@contextlib.contextmanager
def _logged_errors() -> Iterator[None]:
    """Exceptions in this context are logged and dropped, except ConnectionError: the control socket is closed."""
    try:
        yield
    except ConnectionError:
        raise
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)


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


def _failure_reason(error: OSError) -> str:
    """The reason why namespaces do not work here, for users who do not know them."""
    if error.errno == errno.ENOSPC:
        return "the kernel's limit of namespaces is reached or 0, see user.max_*_namespaces in sysctl"
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"the kernel does not let this user make namespaces ({error.strerror})"
    return error.strerror or str(error)


def _supervisor(channel: Channel, namespaces: bool, watcher: int, groups: memory.Cgroups) -> None:
    """Run the supervisor in its own process. Returns when the node process or the watcher has ended."""
    try:
        if namespaces:
            syscalls.die_with_parent(signal.SIGKILL)
            # Slave: later mounts and unmounts of the host propagate to the supervisor, those of the supervisor not to
            # the host.
            syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_SLAVE)
        else:
            syscalls.die_with_parent(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            syscalls.subreaper()
        supervisor = Supervisor(channel, PodNamespaces() if namespaces else None, groups)
    except OSError as error:
        channel.send({"event": "failed", "why": _failure_reason(error)})
        return
    try:
        with contextlib.suppress(ConnectionError):
            supervisor.run(watcher)
    finally:
        supervisor.end()


def main(fd: int, mode: str) -> NoReturn:
    """The watcher: enter the namespaces, fork the supervisor and wait for its end. In shared mode, kill the processes
    that it has left."""
    os.set_inheritable(fd, False)
    channel = Channel(socket.socket(fileno=fd))
    namespaces = mode == "namespace"
    # The supervisor needs a few descriptors per pod; programs get the node process's limit.
    with contextlib.suppress(OSError, ValueError):
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    try:
        if namespaces:
            enter_namespaces()
            syscalls.die_with_parent(signal.SIGKILL)
        else:
            syscalls.subreaper()
        for name in (signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
    except OSError as error:
        channel.send({"event": "failed", "why": _failure_reason(error)})
        sys.exit(1)
    memory.remove_stale_cgroups()
    watcher_read, watcher_write = os.pipe()
    groups = memory.Cgroups(os.getpid())
    supervisor = os.fork()
    if supervisor == 0:
        os.close(watcher_write)
        try:
            _supervisor(channel, namespaces, watcher_read, groups)
        finally:
            if not namespaces:
                reaper.end_all_below(os.getpid())
            os._exit(0)
    os.close(watcher_read)
    channel.sock.close()
    while os.waitpid(-1, 0)[0] != supervisor:
        pass
    if not namespaces:
        reaper.end_all_below(os.getpid())
    memory.remove_stale_cgroups(os.getpid())
    os._exit(0)
