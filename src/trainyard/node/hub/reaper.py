"""Trees of processes: finding them, ending them, collecting what has ended.

Rule: while the init of a container lives, all its descendants are below it (it is PID 1 of their namespace, or their
subreaper). So a container is killed through its init, which goes last, or by the kernel with its namespace."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from . import calls  # relative: this program runs without its package, see the package's docstring

END_ALL = signal.SIGUSR2  # to an init: kill everything below you, then end
AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_ALL}


def _parents() -> dict[int, int]:
    """Every visible process and its parent. Zombies are left out: they are as dead as they will be."""
    found: dict[int, int] = {}
    if not calls.LINUX:
        listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, check=False).stdout
        for line in listing.split(b"\n"):
            words = line.split()
            if len(words) >= 3 and not words[2].startswith(b"Z"):
                found[int(words[0])] = int(words[1])
        return found
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
                if words[0] != b"Z":
                    found[int(name)] = int(words[1])
    return found


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """All processes below `root`, nearest first, without the trees under `spare`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = [root]
    for pid in todo:
        below = [child for child in children.get(pid, ()) if child not in spare]
        found += below
        todo += below
    return found


def end_all_below(root: int, spare: frozenset[int] = frozenset()) -> None:
    """Kill until nobody is left. Looking again catches what was forked between the look and the kill.

    Nothing is reaped here: somebody may still want to know how a child ended."""
    while below := descendants(root, spare):
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)  # dying takes a moment


def end_all_others() -> None:
    """As PID 1 of a pid namespace: kill everybody else in it, and wait until all have gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def reap() -> dict[int, int]:
    """Collect every child that has ended: pid -> exit code, 128 + n for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def block_for_init() -> None:
    """Signals wait until the init is ready for them. To be called before it is forked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def unblock_for_init() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)


def plain_signals() -> None:
    """What exec does not put back: blocked and ignored signals (SIGPIPE by Python, a terminal's by the hub)."""
    for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
