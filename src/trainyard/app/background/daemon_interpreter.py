"""The Python process that becomes the daemon of a background cluster (trainyard/daemon.py).

`trainyard up` starts it before it imports anything else: the two import their modules at the same time, on two cores.
So this module imports three of the standard library: with `subprocess`, `json` and `pathlib` the daemon started 10 ms
later. The process waits for its hand-over (hand_over.py); if `up` ends without one, it ends, too.
"""

from __future__ import annotations

import os
import socket
import sys


class DaemonInterpreter:
    """A process that imports the daemon's modules and then waits for what is sent to `connection`. Raises OSError."""

    def __init__(self) -> None:
        self.connection, standard_input = socket.socketpair()
        # What Python prints before it has the log, such as the traceback of a failed import.
        self._output = os.memfd_create("trainyard-daemon")
        umask = os.umask(0o077)
        try:
            with standard_input:
                self.pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-P", "-m", "trainyard.daemon"],
                    _environment(),
                    file_actions=_file_actions(standard_input.fileno(), self._output),
                    setsid=True,
                )
        finally:
            os.umask(umask)

    def close(self) -> None:
        """Close what this process has of it. Without a hand-over the other process ends."""
        self.connection.close()
        os.close(self._output)

    def last_line(self) -> str:
        """The last line that the process has printed before its hand-over, "" for none."""
        size = os.fstat(self._output).st_size
        lines = os.pread(self._output, size, 0).decode(errors="replace").splitlines()
        return lines[-1] if lines else ""


_early: list[DaemonInterpreter] = []


def start_early() -> None:
    """Start the process that `take` returns, if it can be started: `take` reports why it cannot."""
    try:
        _early.append(DaemonInterpreter())
    except OSError:
        return


def take() -> DaemonInterpreter:
    """The process that was started early, or a new one. Raises OSError."""
    return _early.pop() if _early else DaemonInterpreter()


def _file_actions(standard_input: int, output: int) -> list[tuple[int, ...]]:
    """No other descriptor is inherited: whoever reads a pipe that the shell has opened would wait for the daemon."""
    # Input first: where the command was started without one, its socket may be descriptor 1 or 2.
    copies = [(os.POSIX_SPAWN_DUP2, *pair) for pair in ((standard_input, 0), (output, 1), (output, 2))]
    inherited = (int(name) for name in os.listdir("/proc/self/fd"))
    return [*copies, *((os.POSIX_SPAWN_CLOSE, fd) for fd in inherited if fd > 2 and _is_inheritable(fd))]


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # the descriptor of the list itself
        return False


def _environment() -> dict[str, str]:
    """The environment of this process, with absolute paths in PYTHONPATH: the daemon runs in another folder."""
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep) if part)
    return environment
