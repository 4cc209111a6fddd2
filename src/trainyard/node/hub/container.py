"""One container: the init that the hub forks, the program that the init starts, and those it starts beside it (exec).

Rule: until a program is exec'ed, every failure goes into its report pipe, with the words of the status."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import termios
from dataclasses import dataclass
from typing import Any, NoReturn

from . import calls, reaper, root  # relative: see the package's docstring
from .init import Init, Output, tell
from .memory import Limit
from .namespaces import Pods

_FURTHER = 3  # the first file descriptor that is not one of the three standard ones


class Failed(Exception):
    """A container could not be started. `code`, `reason` and `message` are what its status will say."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.said: dict[str, Any] = {"code": code, "reason": reason, "message": message}

    def write(self, fd: int) -> None:
        os.write(fd, json.dumps(self.said).encode())

    @classmethod
    def read(cls, raw: bytes) -> Failed:
        """The report of an init. One that was killed while it wrote has left a part: that is a failure, too."""
        try:
            said = json.loads(raw)
            return cls(int(said["code"]), str(said["reason"]), str(said["message"]))
        except (ValueError, KeyError, TypeError):
            text = raw[:200].decode(errors="replace")
            return cls(128, "StartError", f"the container's init ended while it reported why: {text}")


@dataclass(frozen=True, slots=True)
class Ends:
    """What an init has of the hub: the pipe for its report, the door, what its program prints into, what becomes of
    that (see init.py), and the limit of its memory."""

    report: int
    door: int
    printing: int
    output: Output
    limit: Limit | None


def run_init(spec: dict[str, Any], ends: Ends, pods: Pods | None) -> NoReturn:
    """Runs in the forked child and never comes back."""
    identity = (int(spec["uid"]), int(spec["gid"])) if pods else None
    code = 128
    try:
        program, own_root = _prepare(spec, ends, pods)
        os.close(ends.report)
        os.close(ends.printing)

        def start(further: dict[str, Any], streams: list[int]) -> int:
            return _further(further, streams, identity, ends.limit)

        unsaved = own_root.unsaved if own_root else None
        code = Init(program, ends.door, ends.output, start, unsaved, ends.limit).run()
    except BaseException as error:
        failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
        try:
            failure.write(ends.report)
        finally:
            os._exit(code)
    os._exit(code)


def _prepare(spec: dict[str, Any], ends: Ends, pods: Pods | None) -> tuple[int, root.Root | None]:
    """Enter the pod, build the root, fork the program. Returns the program's pid, and the root if it is its own."""
    identity = (int(spec["uid"]), int(spec["gid"])) if pods else None
    if pods:
        pods.enter(spec["pod"])
        calls.unshare(calls.NEWNS)
    group = ends.limit.group if ends.limit else None
    cgroup = (group.procs, group.counter) if group else ()
    _keep_only((ends.report, ends.door, ends.printing, ends.output.printed, ends.output.log.fd, *cgroup))
    os.setsid()
    own_root = None
    if pods:
        own_root = root.build(spec["root"], spec["mounts"], spec["cwd"], spec.get("hidden") or ())
    else:
        calls.subreaper()
        calls.die_with_parent(reaper.END_ALL)
    program = os.fork()
    if program == 0:
        try:
            _become(spec, (0, ends.printing, ends.printing), identity, ends.limit)
        except BaseException as error:
            failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
            failure.write(ends.report)
        finally:
            os._exit(128)
    return program, own_root


def _further(spec: dict[str, Any], fds: list[int], identity: tuple[int, int] | None, limit: Limit | None) -> int:
    """Fork one more program into the container: same root, same namespaces, three streams of its own."""
    stdin, stdout, stderr, result = fds
    reaper.block_for_init()
    program = -1
    try:
        program = os.fork()
        if program == 0:
            signal.set_wakeup_fd(-1)  # the pipe is the init's
            for name in reaper.AWAITED:
                signal.signal(name, signal.SIG_DFL)
            _become(spec, (stdin, stdout, stderr), identity, limit)
    except BaseException as error:
        if program != 0:
            raise
        failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
        tell(result, {"error": failure.said})
    finally:
        if program == 0:
            os._exit(128)
        reaper.unblock_for_init()
    return program


def _keep_only(fds: tuple[int, ...]) -> None:
    """Close everything the hub has open, above all its control socket, but for these."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FURTHER):
        os.dup2(devnull, fd)
    low = _FURTHER
    for kept in sorted(fds):
        os.closerange(low, kept)
        low = kept + 1
    os.closerange(low, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))


def _become(
    spec: dict[str, Any], streams: tuple[int, int, int], identity: tuple[int, int] | None, limit: Limit | None
) -> None:
    if limit:
        limit.enter()
    os.setsid()
    if spec.get("tty"):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    calls.die_with_parent(signal.SIGKILL)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(spec["files"]))
    for fd, stream in enumerate(streams):
        os.dup2(stream, fd)
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise Failed(128, "StartError", f"workingDir {spec['cwd']}: {error.strerror}") from None
    if identity and identity != (0, 0):
        calls.become_oneself_again(*identity)
        calls.die_with_parent(signal.SIGKILL)  # a change of credentials takes the wish away
    elif identity:
        calls.drop_system_administration()
    reaper.plain_signals()
    program = spec["argv"][0]
    try:
        os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606  (no shell: that is the point)
    except OSError as error:
        folders = spec["env"].get("PATH", os.defpath).split(":")
        if "/" not in program and not any(os.path.isfile(os.path.join(folder, program)) for folder in folders):
            why = "executable file not found in $PATH"  # an unreadable folder in PATH would else say EACCES
        else:
            why = (error.strerror or "").lower()
        found = "not found" not in why and not isinstance(error, FileNotFoundError | NotADirectoryError)
        code = 126 if found else 127  # as shells have it: there, but cannot be run; not there
        raise Failed(code, "ContainerCannotRun", f'exec: "{program}": {why}') from None
