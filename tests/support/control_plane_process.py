"""One program of the control plane: it leads a session of its own, and dies with us whatever kills us.

Rules:
- On Linux the kernel kills it when the *thread* that started it ends. So `start` is called in a thread that stays, and
  never in a pool's.
- A process that we have not waited for keeps its number, so no stranger is ever killed.
- What it says goes to a file, and the end of that is part of every complaint about it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.waiting import until
from trainyard.node.images import launch

LAUNCH = (sys.executable, "-I", "-S", str(Path(launch.__file__).resolve()))
"""What starts a program that dies with its parent: our process id and the program's words follow."""

PORTS = range(10_000, 20_000)
"""Below what systems give to outgoing connections, and below what nodes take: a restart finds its port free."""
LOOK = 0.03  # seconds between two looks at something that gives no sign
TAIL = 15


class ControlPlaneError(Exception):
    """A part of the control plane did not do what it must. The text has what it said."""


class ControlPlaneProcess:
    """A program and its log."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str], descriptors: Sequence[int] = ()
    ) -> None:
        self.name, self.command, self.log, self.env = name, list(command), log, dict(env)
        self._descriptors = descriptors  # open files that it has, too
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} has not been started"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it, if it does not run. Its log goes on."""
        if self.alive:
            return
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                [*LAUNCH, str(os.getpid()), *self.command],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self.log.parent,
                pass_fds=self._descriptors,
            )

    def send(self, number: signal.Signals) -> None:
        """To it and to all that it started."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGKILL, seconds: float = 20.0) -> None:
        """Send the signal and wait until it is gone. One that is paused goes on first."""
        if self._child is None:
            return
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._child.wait()

    def output(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])
        except FileNotFoundError:
            return ""

    def complain(self, description: str) -> ControlPlaneError:
        return ControlPlaneError(f"{self.name} {description}; its output:\n{self.output()}")

    def wait_until(self, true: Callable[[], bool], description: str, seconds: float = 60.0) -> None:
        """Wait until that is true. Raises ControlPlaneError when the program ends before that, or after `seconds`."""

        def look() -> bool:
            if true():
                return True
            if not self.alive:
                raise self.complain(f"ended before {description}")
            return False

        try:
            until(look, description, seconds=seconds, pause=LOOK)
        except AssertionError as error:
            raise self.complain(f"runs, but {error}") from error


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ControlPlaneError(
        f"no {count} free ports between {PORTS.start} and {PORTS.stop} on loopback; end what listens"
    )
