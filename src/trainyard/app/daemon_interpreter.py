"""The Python process that becomes the daemon of a background cluster (trainyard/daemon.py).

`trainyard up` starts it before it imports its own modules: the two import theirs at the same time, on two cores, which
takes an eighth off. The process waits for its hand-over; if `up` ends without one, it ends, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

MAX_MESSAGE = 1 << 20  # bytes


class HandOver(NamedTuple):
    """What the daemon gets. All but `folder` and `options` are open file descriptors."""

    folder: Path
    options: dict[str, Any]
    lock: int
    pipe: int
    log: int
    certificates: int | None = None
    """The output of a CertificateProcess, for a cluster that has no certificate yet."""


class DaemonInterpreter:
    """A process that imports the daemon's modules and then waits for `hand_over`. Raises OSError."""

    def __init__(self) -> None:
        self._socket, standard_input = socket.socketpair()
        # What Python prints before it has the log, such as the traceback of a failed import.
        self._output = os.memfd_create("trainyard-daemon")
        with standard_input:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainyard.daemon"],
                stdin=standard_input.fileno(),
                stdout=self._output,
                stderr=self._output,
                env=_environment(),
                cwd="/",
                umask=0o077,
                start_new_session=True,
            )

    def hand_over(self, what: HandOver) -> None:
        """Let the process go on as the daemon. Raises OSError."""
        message = json.dumps([str(what.folder), what.options]).encode()
        fds = [what.lock, what.pipe, what.log, *([] if what.certificates is None else [what.certificates])]
        sent = socket.send_fds(self._socket, [message], fds)
        self._socket.sendall(message[sent:])
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close what this process has of it. Without a hand-over the other process ends."""
        self._socket.close()
        os.close(self._output)

    def last_line(self) -> str:
        """The last line that the process has printed before its hand-over, "" for none."""
        lines = os.pread(self._output, MAX_MESSAGE, 0).decode(errors="replace").splitlines()
        return lines[-1] if lines else ""


def receive() -> HandOver | None:
    """In the process: wait for the hand-over. None when `trainyard up` has ended without one."""
    with socket.socket(fileno=os.dup(0)) as connection:
        message, fds, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 4)
        if not message:
            return None
        for fd in fds:
            os.set_inheritable(fd, False)
        while part := connection.recv(MAX_MESSAGE):
            message += part
    folder, options = json.loads(message)
    return HandOver(Path(folder), options, *fds)


_early: list[DaemonInterpreter] = []


def start_early() -> None:
    """Start the process that `take` returns, if it can be started: `take` reports why it cannot."""
    with contextlib.suppress(OSError):
        _early.append(DaemonInterpreter())


def take() -> DaemonInterpreter:
    """The process that was started early, or a new one. Raises OSError."""
    return _early.pop() if _early else DaemonInterpreter()


def _environment() -> dict[str, str]:
    """The environment of this process, with absolute paths in PYTHONPATH: the daemon runs in another folder."""
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep) if part)
    return environment
