"""Starts a program that dies with its parent: `launch.py PARENT_PID PROGRAM ARGS...`. Runs as a script, alone.

On Linux the kernel sends SIGKILL when the parent dies (prctl PR_SET_PDEATHSIG, which survives exec). The parent may
have died before the prctl call, so getppid is compared afterwards. On other systems it only starts the program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the program; arguments: the pid of the parent, the program and its arguments."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(program[0], program)  # noqa: S606 - a list, no shell


if __name__ == "__main__":
    main()
