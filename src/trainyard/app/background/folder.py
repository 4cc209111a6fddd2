"""The private folder of a cluster: logs, volumes, sockets. Mode 0700, removed at the end.

A killed process cannot remove its folder. Each process holds a lock in its folder as long as it lives, and every start
removes the folders of this user whose lock is free, so the folders of killed processes do not accumulate.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "trainyard-run-"
_LOCK = ".lock"


class PrivateFolder:
    """A new folder in `parent`, by default in the system's temporary folder. Raises OSError."""

    def __init__(self, parent: Path | None = None) -> None:
        place = parent or Path(tempfile.gettempdir())
        remove_abandoned(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # 0700
        try:
            self._lock = _create_lock(self.path)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def close(self, keep: bool = False) -> None:
        """Remove the folder, or with `keep` only its lock file, so that `remove_abandoned` does not remove it."""
        if keep:
            (self.path / _LOCK).unlink(missing_ok=True)
        else:
            with contextlib.suppress(OSError):
                remove(self.path)
        os.close(self._lock)


def remove(folder: Path) -> None:
    """Remove the folder with all files that pods made in it. Raises OSError when a file cannot be removed."""
    from trainyard.node.kubelet.volumes.removal import remove as remove_tree

    remove_tree(folder)


def make_private(folder: Path) -> None:
    """Make the folder unless it exists, and set its mode to 0700. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _create_lock(path: Path) -> int:
    """Create and lock the lock file, and return its descriptor. It is locked before it has the name that
    `remove_abandoned` tests."""
    new_file = path / f"{_LOCK}.new"
    lock = os.open(new_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new_file.rename(path / _LOCK)
    return lock


def remove_abandoned(place: Path) -> None:
    """Remove the folders in `place` that dead processes of this user left. A folder without a lock file is being made,
    or was kept."""
    for path in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.stat().st_uid == os.getuid() and not is_locked(path / _LOCK):
                remove(path)


def is_locked(path: Path) -> bool:
    """Whether a process holds an exclusive lock on this file. Raises OSError when it cannot be opened."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
