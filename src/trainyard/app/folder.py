"""The cluster's private folder: logs, volumes, sockets. 0700, removed at the end.

A folder whose process was killed cannot be removed by it. Each holds a lock as long as its process lives, and every
new start sweeps those of this user that nobody holds, so kills never add up.
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


class Folder:
    """A new folder under the system's place for temporary files, or under `parent`."""

    def __init__(self, parent: Path | None = None) -> None:
        place = parent or Path(tempfile.gettempdir())
        sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # 0700
        try:
            self._lock = _locked(self.path)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def close(self, keep: bool = False) -> None:
        """Remove the folder. A kept one loses its lock file, so that no sweep takes it."""
        if keep:
            (self.path / _LOCK).unlink(missing_ok=True)
        else:
            with contextlib.suppress(OSError):
                remove(self.path)
        os.close(self._lock)


def remove(folder: Path) -> None:
    """The folder and all that pods have left in it. Raises OSError when something stays."""
    from trainyard.node.removing import remove as removed  # here: who only looks at folders loads no node

    removed(folder)


def private(folder: Path) -> None:
    """Make the folder, if it is not there, for this user alone. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _locked(path: Path) -> int:
    """Held before it has the name that `sweep` looks for."""
    early = path / f"{_LOCK}.new"
    lock = os.open(early, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    early.rename(path / _LOCK)
    return lock


def sweep(place: Path) -> None:
    """Remove what dead processes of this user left."""
    for path in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.stat().st_uid == os.getuid() and _abandoned(path):
                remove(path)


def _abandoned(path: Path) -> bool:
    """True when the lock is there and nobody holds it. Without a lock file it is being made, or kept on purpose."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
