"""Removes the folder of a control plane whose owner was killed: `control_plane_reaper.py FOLDER`. A script, alone.

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


def start(folder: Path) -> subprocess.Popen[bytes]:
    """The reaper of that folder. It ends when the folder's lock is let go."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(folder)],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
        cwd="/",
    )


def main() -> None:
    folder = Path(sys.argv[1])
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
