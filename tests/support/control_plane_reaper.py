"""Removes the folder of a control plane whose owner was killed: `control_plane_reaper.py FOLDER CGROUP...`. A script,
alone. A real node has cgroups, which are removed, too.

It waits for the folder's lock, which the owner holds as long as it lives; so it neither looks nor asks. The programs
die with the owner, but maybe a little later, and write until then: hence several tries.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TRIES, PAUSE = 100, 0.05


def start(folder: Path, *cgroups: Path) -> subprocess.Popen[bytes]:
    """The reaper of that folder and these cgroups. It ends when the folder's lock is let go."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(folder), *map(str, cgroups)],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
        cwd="/",
    )


def main() -> None:
    folder, *cgroups = map(Path, sys.argv[1:])
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        for cgroup in cgroups:
            with contextlib.suppress(OSError):
                remove_cgroup(cgroup)
        if not any(path.exists() for path in (folder, *cgroups)):
            break
        time.sleep(PAUSE)


def remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup with those below it. Raises OSError while a process is in one of them."""
    for path, _, _ in os.walk(cgroup, topdown=False):
        os.rmdir(path)


if __name__ == "__main__":
    main()
