"""Process trees: listing, killing and reaping them.

Rule: while the init of a container runs, all processes of the container are its descendants (it is PID 1 of their
namespace, or their subreaper). So a container is killed by its init, which exits last, or by the kernel with its pid
namespace."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time

from . import syscalls  # relative: this program runs without its package, see the package's docstring

END_ALL = signal.SIGUSR2  # to an init: kill all descendants, then exit
_FORK_BYTES = 1 << 20  # a forked process may have touched so much more than its parent
INIT_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_ALL}


def _parents() -> dict[int, int]:
    """pid -> parent pid of every visible process, without zombies, which have ended already."""
    parents: dict[int, int] = {}
    if not syscalls.LINUX:
        listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, check=False).stdout
        for line in listing.split(b"\n"):
            fields = line.split()
            if len(fields) >= 3 and not fields[2].startswith(b"Z"):
                parents[int(fields[0])] = int(fields[1])
        return parents
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    parents[int(name)] = int(fields[1])
    return parents


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """All descendants of `root`, nearest first, without the subtrees at `spare`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    pids: list[int] = []
    queue = [root]
    for pid in queue:
        below = [child for child in children.get(pid, ()) if child not in spare]
        pids += below
        queue += below
    return pids


def end_all_below(root: int, spare: frozenset[int] = frozenset()) -> None:
    """Kill the descendants of `root` until none is left: repeated, because a process may fork between listing and kill.

    Nothing is reaped here: the caller may still need the exit codes."""
    while below := descendants(root, spare):
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)  # processes end a moment after the signal


def end_all_others() -> None:
    """As PID 1 of a pid namespace: kill all other processes in it, and reap them."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def reap() -> dict[int, int]:
    """Reap every child that has ended: pid -> exit code, 128 + n for signal n."""
    exit_codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_codes
        if pid == 0:
            return exit_codes
        code = os.waitstatus_to_exitcode(status)
        exit_codes[pid] = code if code >= 0 else 128 - code


def visible_pid() -> int:
    """The pid of this process in the pid namespace of /proc: before an init has a root folder of its own, that of the
    node process."""
    try:
        return int(os.readlink("/proc/self"))
    except OSError:
        return os.getpid()


def max_rss() -> int:
    """The largest resident size in bytes that one of the reaped descendants of this process has had; 0 when it is not
    larger than that of this process, from which the descendants were forked."""
    own, descendant = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 1024 if syscalls.LINUX else 1
    return descendant * unit if (descendant - own) * unit > _FORK_BYTES else 0


def block_for_init() -> None:
    """Block the signals that an init handles until it is ready. Must be called before the fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, INIT_SIGNALS)


def unblock_for_init() -> None:
    """Undo `block_for_init`, in the parent after the fork."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INIT_SIGNALS)


def reset_signals() -> None:
    """Reset what exec keeps: blocked and ignored signals (Python ignores SIGPIPE, the supervisor SIGINT and SIGHUP)."""
    for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
