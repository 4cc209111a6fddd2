"""The process of the program `supervisor`, which starts all containers and ends with the process that started
it.

It may be started before the Node is created: then it gets ready while the rest of the program is loaded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from trainyard.node.supervisor.channel import Channel

PROGRAM = Path(__file__).parents[1] / "supervisor"
LOG = "supervisor.log"
EXIT_SECONDS = 10.0  # from closing its socket to its exit


def start_supervisor(network: str, folder: Path) -> SupervisorProcess:
    """The supervisor for a node that is made later, its log in `folder`. `network`: of the node, which tries
    "namespace" first for "auto". Raises OSError."""
    return SupervisorProcess("namespace" if network == "auto" else network, folder / LOG)


class SupervisorProcess:
    """`mode` is the network, "namespace" or "shared"; its errors are appended to the file `log`. Raises OSError."""

    def __init__(self, mode: str, log: Path) -> None:
        self.mode, self.log = mode, log
        node_end, supervisor_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        node_end.setblocking(False)
        self.channel = Channel(node_end)
        with (
            supervisor_end,
            os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as errors,
        ):
            self._process = subprocess.Popen(
                # The program does not read the folder: it only identifies the node in the output of `ps`.
                [sys.executable, "-I", "-S", str(PROGRAM), str(supervisor_end.fileno()), mode, str(log.parent)],
                pass_fds=[supervisor_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for the node process alone
            )

    @property
    def pid(self) -> int:
        """The pid of the supervisor."""
        return self._process.pid

    def close(self) -> None:
        """End the process and all containers: it exits when its socket is closed, and is killed if it does not. May be
        called again. Blocks for EXIT_SECONDS at most."""
        self.channel.sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
            return
        self._process.kill()
        self._process.wait()
