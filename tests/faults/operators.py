"""`trainyard operator` as real processes, forked from one that has imported it: a start costs milliseconds.

Run as a program this file is that process: it reads one JSON object a line (argv, env, log, mutant), forks, and writes
the pid. A mutant is applied in the child alone. When its input ends, it ends, and the kernel kills its children.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.controller_runtime import reflector

PR_SET_PDEATHSIG = 1
PAGE_SIZE = 2  # so that lists of a few objects have several pages
ROOT = Path(__file__).parents[2]


class Zygote:
    """`start` forks an operator. The pids are the caller's to signal; all end with `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.operators"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def start(self, argv: list[str], env: dict[str, str], log: Path, mutant: str = "", shift: float = 0.0) -> int:
        """`shift`: seconds that the operator's wall clock is ahead; it jumps back and forth by that twice a second."""
        assert self._process.stdin is not None
        request = {"argv": argv, "env": env, "log": str(log), "mutant": mutant, "shift": shift}
        print(json.dumps(request), file=self._process.stdin)
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def alive(pid: int) -> bool:
    """False once the process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _child(request: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(request["env"])
    reflector.PAGE_SIZE = PAGE_SIZE
    if request["mutant"]:
        from tests.faults.mutants import MUTANTS

        MUTANTS[str(request["mutant"])].apply()
    if request["shift"]:
        _shift_clocks(jumping(float(str(request["shift"]))))
    from trainyard.cli.operator import operator

    operator.main(args=request["argv"], prog_name="trainyard operator")


def jumping(shift: float) -> Callable[[], float]:
    """A wall clock that is right, `shift` ahead and `shift` behind in turns, for half a second each."""

    def now() -> float:
        return time.time() + shift * (int(time.monotonic() * 2) % 3 - 1)

    return now


def _shift_clocks(now: Callable[[], float]) -> None:
    """The clocks that the operator and the election are given in this process."""
    from trainyard.app import operating
    from trainyard.controller_runtime.leader_election import LeaderElector

    operating.Operator = functools.partial(operating.Operator, now=now)
    operating.LeaderElector = functools.partial(LeaderElector, now=now)


def _serve() -> None:
    for module in (
        "tests.faults.mutants",
        "trainyard.app.operating",
        "trainyard.cli.command.signals",
        "trainyard.cli.operator",
    ):
        importlib.import_module(module)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _child(json.loads(line))
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    _serve()
