"""The environments in the cache: their size, their locks, and their removal.

Guarantees:
- A process that runs programs of an environment holds a shared file lock on it; the kernel releases it when the process
  dies.
- An environment that is locked or being built is never removed. A removal first renames the folder, so it disappears in
  one step.
- Only folders of a builder are touched: environments/NAME-DIGEST, their lock files and staging folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from pathlib import Path

import msgspec

from trainyard.objects.patterns import lazy_pattern

RECORD = "trainyard.json"  # file in an environment with its origin; its modification time is the last use
_ENVIRONMENT_NAME = re.compile(r"[a-z0-9.-]+-[0-9a-f]{16}")
_LEFTOVER_NAME = lazy_pattern(r"\.([a-z0-9.-]+-[0-9a-f]{16})\.\w+")


class Environment(msgspec.Struct, frozen=True):
    """One finished environment. `record`: its record file, {} if an older trainyard built it. `last_used`: the Unix
    time of its last use. `locked`: a process holds its lock."""

    folder: Path
    record: dict[str, object]
    last_used: float
    locked: bool

    @property
    def name(self) -> str:
        """The name in messages: the catalogue's, else the folder's."""
        return str(self.record.get("name") or self.folder.name)


class Usage(msgspec.Struct, frozen=True):
    """`on_disk`: bytes of a folder. `own`: the bytes that its removal frees, without files shared with uv's cache."""

    on_disk: int
    own: int


def list_environments(cache: Path) -> list[Environment]:
    """The built environments in the cache folder, by folder name. Unfinished ones are left out."""
    built = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for folder in sorted((cache / "environments").iterdir()):
            if _ENVIRONMENT_NAME.fullmatch(folder.name) and (folder / "pyvenv.cfg").is_file():
                built.append(Environment(folder, read_record(folder), _last_used(folder), _is_locked(folder)))
    return built


def list_leftovers(cache: Path) -> list[Path]:
    """Folders that killed builds and removals have left."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in sorted((cache / "environments").iterdir()) if _LEFTOVER_NAME.fullmatch(path.name)]
    return []


def read_record(folder: Path) -> dict[str, object]:
    """What the build wrote about the environment: name, requirements, size; {} when the file is missing or broken."""
    with contextlib.suppress(OSError, ValueError):
        record = json.loads((folder / RECORD).read_bytes())
        return record if isinstance(record, dict) else {}
    return {}


def _last_used(folder: Path) -> float:
    for path in (folder / RECORD, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return time.time()


def disk_usage(folder: Path) -> Usage:
    """The disk usage of a folder in bytes. Hard links count once."""
    folder_bytes = 0
    links: dict[tuple[int, int], list[int]] = {}  # (device, inode) -> [bytes, links in all, links in here]
    for path, _, files in os.walk(folder):
        with contextlib.suppress(OSError):
            folder_bytes += os.lstat(path).st_blocks * 512
        for name in files:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(path, name))
                file = links.setdefault((status.st_dev, status.st_ino), [status.st_blocks * 512, status.st_nlink, 0])
                file[2] += 1
    files_here = sum(size for size, _, _ in links.values())
    own = sum(size for size, total, links_here in links.values() if links_here >= total)
    return Usage(folder_bytes + files_here, folder_bytes + own)


# --- Holding --------------------------------------------------------------------------------------------------------


def lock_environment(folder: Path) -> int:
    """Lock an environment against removal until the returned descriptor is closed; -1 if the cache is not
    writable."""
    while True:
        try:
            lock = os.open(_use_lock_path(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return -1
        fcntl.flock(lock, fcntl.LOCK_SH)
        if is_same_file(lock, _use_lock_path(folder)):
            with contextlib.suppress(OSError):
                os.utime(folder / RECORD)
            return lock
        os.close(lock)  # the folder and its lock file were removed in between


def _is_locked(folder: Path) -> bool:
    """Whether a running pod uses the environment: it holds the file lock."""
    try:
        lock = os.open(_use_lock_path(folder), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(lock)
    finally:
        os.close(lock)


def remove(folder: Path) -> int | None:
    """Remove an environment. Returns the freed bytes, None if it is in use or being built. Raises OSError."""
    renamed = folder.with_name(f".{folder.name}.removed")
    with contextlib.ExitStack() as locks:
        for path in (f"{folder}.lock", _use_lock_path(folder)):  # no builder, no user
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            locks.callback(os.close, lock)
            if not try_lock(lock) or not is_same_file(lock, path):
                return None
        freed = disk_usage(folder).own
        shutil.rmtree(renamed, ignore_errors=True)
        folder.rename(renamed)
        os.unlink(_use_lock_path(folder))
        os.unlink(f"{folder}.lock")
    shutil.rmtree(renamed)
    return freed


def remove_leftover(path: Path) -> int:
    """Remove a leftover. Returns the freed bytes, 0 if a builder holds the lock. Raises OSError."""
    match = _LEFTOVER_NAME.fullmatch(path.name)
    lock = os.open(path.with_name(f"{match[1] if match else path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        if not try_lock(lock):
            return 0
        freed = disk_usage(path).own
        shutil.rmtree(path)
        return freed
    finally:
        os.close(lock)


def _use_lock_path(folder: Path) -> str:
    return f"{folder}.used"


def try_lock(lock: int) -> bool:
    """Take an exclusive lock without waiting; False if another process or descriptor holds a lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_same_file(lock: int, path: str) -> bool:
    """True if the open file is still the file at the path."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except OSError:
        return False
