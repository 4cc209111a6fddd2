"""The file locks of a background cluster. A lock ends with the process that holds it, also after `kill -9`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from trainyard.app.background.cluster_folders import BackgroundError, folder_error

POLL_SECONDS = 0.05  # seconds between two attempts to take a lock that another process holds


def try_lock(lock: int, seconds: float) -> bool:
    """Try for `seconds` to lock the open file exclusively; whether that succeeded."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock file `turn` of a cluster: only one process starts or stops the cluster at a time. Waits without a
    limit. Raises BackgroundError."""
    lock = _acquire_turn(folder)
    while not _is_file_at(lock, folder / "turn"):  # the previous holder has removed the folder
        os.close(lock)
        lock = _acquire_turn(folder)
    try:
        yield
    finally:
        os.close(lock)


def _acquire_turn(folder: Path) -> int:
    """Make the folder, lock the file `turn` and return its file descriptor. Raises BackgroundError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise BackgroundError(f"{folder} belongs to another user; set XDG_STATE_HOME to a folder that you own")
        folder.chmod(0o700)
        lock = os.open(folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise folder_error(folder, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _is_file_at(fd: int, path: Path) -> bool:
    """Whether `path` still names this open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False
