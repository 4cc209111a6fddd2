"""One container: the init that the hub forks, and the program that the init starts.

Rule: until the program is exec'ed, every failure goes into the report pipe, with the words of the status."""

from __future__ import annotations

import json
import os
import resource
import signal
from typing import Any, NoReturn

from . import calls, reaper, root  # relative: see the package's docstring
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
        said = json.loads(raw)
        return cls(said["code"], said["reason"], said["message"])


def run_init(spec: dict[str, Any], log: int, report: int, pods: Pods | None) -> NoReturn:
    """Runs in the forked child and never comes back."""
    code = 128
    try:
        program = _prepare(spec, log, report, pods)
        os.close(report)
        os.close(log)
        code = reaper.be_init(program, alone=pods is not None)
    except BaseException as error:
        failure = error if isinstance(error, Failed) else Failed(128, "StartError", str(error))
        try:
            failure.write(report)
        finally:
            os._exit(code)
    os._exit(code)


def _prepare(spec: dict[str, Any], log: int, report: int, pods: Pods | None) -> int:
    """Enter the pod, build the root, fork the program. Returns the program's pid."""
    identity = (int(spec["uid"]), int(spec["gid"]))
    if pods:
        pods.enter(spec["pod"])
        calls.unshare(calls.NEWNS)
    log, report = _keep_only(log, report)
    os.setsid()
    if pods:
        root.build(spec["root"], spec["mounts"], spec["cwd"])
    else:
        calls.subreaper()
        calls.die_with_parent(reaper.END_ALL)
    program = os.fork()
    if program == 0:
        try:
            _become(spec, log, identity if pods else None)
        except Failed as failure:
            failure.write(report)
        except BaseException as error:
            Failed(128, "StartError", str(error)).write(report)
        finally:
            os._exit(128)
    return program


def _keep_only(log: int, report: int) -> tuple[int, int]:
    """Close everything the hub has open, above all its control socket, but for these two."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FURTHER):
        os.dup2(devnull, fd)
    top = os.sysconf("SC_OPEN_MAX")
    first, second = sorted((log, report))
    os.closerange(_FURTHER, first)
    os.closerange(first + 1, second)
    os.closerange(second + 1, min(top, 1 << 16))
    return log, report


def _become(spec: dict[str, Any], log: int, identity: tuple[int, int] | None) -> None:
    os.setsid()
    calls.die_with_parent(signal.SIGKILL)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(spec["files"]))
    for fd in (1, 2):
        os.dup2(log, fd)
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise Failed(128, "StartError", f"workingDir {spec['cwd']}: {error.strerror}") from None
    if identity and identity != (0, 0):
        calls.become_oneself_again(*identity)
        calls.die_with_parent(signal.SIGKILL)  # a change of credentials takes the wish away
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
