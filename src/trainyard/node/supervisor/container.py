"""One container: the init that the supervisor forks, the program that the init starts, and further programs (exec).

Rule: until a program is exec'ed, every failure is written to its report pipe, with code, reason and message."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import stat
import termios
from typing import Any, NamedTuple, NoReturn

from . import reaper, root_filesystem, syscalls  # relative: see the package's docstring
from .init import Init, Output, write_line
from .memory import Limit
from .namespaces import PodNamespaces

_FIRST_FREE_FD = 3  # the first file descriptor after stdin, stdout and stderr


class Failed(Exception):
    """A container could not be started. `code`, `reason` and `message` are those of its terminated state."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.fields: dict[str, Any] = {"code": code, "reason": reason, "message": message}

    def write(self, fd: int) -> None:
        """Write the report for `read` into the pipe."""
        os.write(fd, json.dumps(self.fields).encode())

    @classmethod
    def read(cls, raw: bytes) -> Failed:
        """From the report of an init. The incomplete report of an init that was killed while writing is a failure,
        too."""
        try:
            report = json.loads(raw)
            return cls(int(report["code"]), str(report["reason"]), str(report["message"]))
        except (ValueError, KeyError, TypeError):
            text = raw[:200].decode(errors="replace")
            return cls(128, "StartError", f"the container's init ended while it reported its error: {text}")


class InitDescriptors(NamedTuple):
    """File descriptors and objects that an init inherits from the supervisor: the pipe for its report, the socket for
    exec requests (`exec_socket`), the write end of its program's output, the read end with the log (see init.py), and
    the memory limit."""

    report: int
    exec_socket: int
    output_write: int
    output: Output
    limit: Limit | None


def run_init(spec: dict[str, Any], ends: InitDescriptors, pods: PodNamespaces | None) -> NoReturn:
    """Runs in the forked child and does not return."""
    identity = (int(spec["uid"]), int(spec["gid"])) if pods else None
    code = 128
    write_line(ends.exec_socket, {"pid": reaper.visible_pid()})
    try:
        program, own_root = _prepare(spec, ends, pods)
        os.close(ends.report)
        os.close(ends.output_write)

        def start(exec_spec: dict[str, Any], streams: list[int]) -> int:
            return _exec(exec_spec, streams, identity, ends.limit)

        unsaved = own_root.unsaved if own_root else None
        code = Init(program, ends.exec_socket, ends.output, start, unsaved, ends.limit).run()
    except BaseException as error:
        failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
        try:
            failure.write(ends.report)
        finally:
            os._exit(code)
    os._exit(code)


def _prepare(
    spec: dict[str, Any], ends: InitDescriptors, pods: PodNamespaces | None
) -> tuple[int, root_filesystem.Root | None]:
    """Enter the pod's namespaces, build the root, fork the program. Returns the pid of the program, and the root (None
    in shared mode)."""
    identity = (int(spec["uid"]), int(spec["gid"])) if pods else None
    if pods:
        pods.enter(spec["pod"])
        syscalls.unshare(syscalls.NEWNS)
    group = ends.limit.group if ends.limit else None
    cgroup = (group.procs, group.counter) if group else ()
    _close_all_but((ends.report, ends.exec_socket, ends.output_write, ends.output.read_fd, ends.output.log.fd, *cgroup))
    os.setsid()
    own_root = None
    if pods:
        own_root = root_filesystem.build(spec["root"], spec["mounts"], spec["cwd"], spec.get("hidden") or ())
    else:
        syscalls.subreaper()
        syscalls.die_with_parent(reaper.END_ALL)
    program = os.fork()
    if program == 0:
        try:
            _exec_program(spec, (0, ends.output_write, ends.output_write), identity, ends.limit)
        except BaseException as error:
            failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
            failure.write(ends.report)
        finally:
            os._exit(128)
    return program, own_root


def _exec(spec: dict[str, Any], fds: list[int], identity: tuple[int, int] | None, limit: Limit | None) -> int:
    """Fork a further program into the container: same root and namespaces, three streams of its own. Returns its pid.
    Raises OSError."""
    stdin, stdout, stderr, result = fds
    reaper.block_for_init()
    program = -1
    try:
        program = os.fork()
        if program == 0:
            signal.set_wakeup_fd(-1)  # the wakeup pipe belongs to the init
            for name in reaper.INIT_SIGNALS:
                signal.signal(name, signal.SIG_DFL)
            _exec_program(spec, (stdin, stdout, stderr), identity, limit)
    except BaseException as error:
        if program != 0:
            raise
        failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
        write_line(result, {"error": failure.fields})
    finally:
        if program == 0:
            os._exit(128)
        reaper.unblock_for_init()
    return program


def _close_all_but(fds: tuple[int, ...]) -> None:
    """Close all descriptors inherited from the supervisor, above all its control socket, except `fds`."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FIRST_FREE_FD):
        os.dup2(devnull, fd)
    first = _FIRST_FREE_FD
    for open_fd in sorted(fds):
        os.closerange(first, open_fd)
        first = open_fd + 1
    os.closerange(first, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))


def _exec_program(
    spec: dict[str, Any], streams: tuple[int, int, int], identity: tuple[int, int] | None, limit: Limit | None
) -> None:
    if limit:
        limit.enter()
    os.setsid()
    if spec.get("tty"):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    syscalls.die_with_parent(signal.SIGKILL)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(spec["files"]))
    for fd, stream in enumerate(streams):
        os.dup2(stream, fd)
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise Failed(128, "StartError", f"workingDir {spec['cwd']}: {error.strerror}") from None
    if identity and identity != (0, 0):
        syscalls.restore_user(*identity)
        syscalls.die_with_parent(signal.SIGKILL)  # the kernel clears PDEATHSIG at a change of credentials
    elif identity:
        syscalls.drop_cap_sys_admin()
    program = spec["argv"][0]
    if spec.get("user"):
        _change_user(spec["user"], program, spec["env"])
    reaper.reset_signals()
    try:
        os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606  (no shell: that is the point)
    except OSError as error:
        folders = spec["env"].get("PATH", os.defpath).split(":")
        if "/" not in program and not any(os.path.isfile(os.path.join(folder, program)) for folder in folders):
            reason = "executable file not found in $PATH"  # an unreadable folder in PATH would give EACCES
        else:
            reason = (error.strerror or "").lower()
        exists = "not found" not in reason and not isinstance(error, FileNotFoundError | NotADirectoryError)
        code = 126 if exists else 127  # as in shells: 126 cannot be executed, 127 not found
        raise Failed(code, "ContainerCannotRun", f'exec: "{program}": {reason}') from None


def _found(program: str, env: dict[str, str]) -> str:
    """The file that root would execute as `program`, "" if there is none."""
    folders = [""] if "/" in program else env.get("PATH", os.defpath).split(":")
    files = (os.path.join(folder, program) for folder in folders)
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), "")


def _change_user(user: dict[str, Any], program: str, env: dict[str, str]) -> None:
    """Become that user, with these groups, for good. The pipes of the output become the user's, who could not open
    /dev/stderr otherwise. Raises Failed if the user may not execute the program: another one of that name, later in
    PATH, would be a surprise."""
    executable = _found(program, env)
    for fd in range(_FIRST_FREE_FD):
        if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
            os.fchown(fd, user["uid"], -1)
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    syscalls.die_with_parent(signal.SIGKILL)  # the kernel clears PDEATHSIG at a change of credentials
    if executable and not os.access(executable, os.X_OK):
        text = f'exec: "{program}": user {user["uid"]} may not execute {executable} (securityContext.runAsUser)'
        raise Failed(126, "ContainerCannotRun", text)
