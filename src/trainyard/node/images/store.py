"""The environments in the cache: how large each is, who uses it, and how one is removed.

Guarantees:
- Whoever runs programs of an environment holds it: a shared file lock, which the kernel lets go when the holder dies.
- What is held, or is being built, is never removed. What is removed leaves its place in one step, by a rename.
- Only folders that a builder made are touched: environments/NAME-DIGEST, with what belongs to them.
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

RECORD = "trainyard.json"  # in an environment: what it was built from; its time is that of the last use
_NAME = re.compile(r"[a-z0-9.-]+-[0-9a-f]{16}")
_LEFT = re.compile(r"\.([a-z0-9.-]+-[0-9a-f]{16})\.\w+")


class Environment(msgspec.Struct, frozen=True):
    """One finished environment. `record` is empty for one that an older trainyard built."""

    folder: Path
    record: dict[str, object]
    used: float
    held: bool

    @property
    def name(self) -> str:
        return str(self.record.get("name") or self.folder.name)


class Usage(msgspec.Struct, frozen=True):
    """Bytes on disk, and how many of them come free when the folder goes: files shared with uv's cache stay there."""

    on_disk: int
    own: int


def environments(cache: Path) -> list[Environment]:
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for folder in sorted((cache / "environments").iterdir()):
            if _NAME.fullmatch(folder.name) and (folder / "pyvenv.cfg").is_file():
                found.append(Environment(folder, read_record(folder), _last_used(folder), is_held(folder)))
    return found


def leftovers(cache: Path) -> list[Path]:
    """What builds and removals that were killed have left."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in sorted((cache / "environments").iterdir()) if _LEFT.fullmatch(path.name)]
    return []


def read_record(folder: Path) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        record = json.loads((folder / RECORD).read_bytes())
        return record if isinstance(record, dict) else {}
    return {}


def _last_used(folder: Path) -> float:
    for path in (folder / RECORD, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return time.time()


def usage(folder: Path) -> Usage:
    """What a folder takes. Hard links count once."""
    folders = 0
    links: dict[tuple[int, int], list[int]] = {}  # (device, inode) -> [bytes, links in all, links in here]
    for at, _, files in os.walk(folder):
        with contextlib.suppress(OSError):
            folders += os.lstat(at).st_blocks * 512
        for name in files:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(at, name))
                file = links.setdefault((found.st_dev, found.st_ino), [found.st_blocks * 512, found.st_nlink, 0])
                file[2] += 1
    files_here = sum(size for size, _, _ in links.values())
    own = sum(size for size, total, here in links.values() if here >= total)
    return Usage(folders + files_here, folders + own)


# --- Holding --------------------------------------------------------------------------------------------------------


def hold(folder: Path) -> int:
    """Keeps a folder from being removed until the descriptor is closed; -1 where the cache cannot be written."""
    while True:
        try:
            lock = os.open(_used(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return -1
        fcntl.flock(lock, fcntl.LOCK_SH)
        if is_at(lock, _used(folder)):
            with contextlib.suppress(OSError):
                os.utime(folder / RECORD)
            return lock
        os.close(lock)  # whoever removed the folder has removed the lock


def is_held(folder: Path) -> bool:
    try:
        lock = os.open(_used(folder), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(lock)
    finally:
        os.close(lock)


def remove(folder: Path) -> int | None:
    """Removes an environment; the bytes that came free, None when it is in use. Raises OSError."""
    gone = folder.with_name(f".{folder.name}.removed")
    with contextlib.ExitStack() as locks:
        for path in (f"{folder}.lock", _used(folder)):  # no builder, no user
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            locks.callback(os.close, lock)
            if not try_lock(lock) or not is_at(lock, path):
                return None
        freed = usage(folder).own
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        os.unlink(_used(folder))
        os.unlink(f"{folder}.lock")
    shutil.rmtree(gone)
    return freed


def remove_leftover(path: Path) -> int:
    """The bytes that came free; 0 when its builder lives. Raises OSError."""
    found = _LEFT.fullmatch(path.name)
    lock = os.open(path.with_name(f"{found[1] if found else path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        if not try_lock(lock):
            return 0
        freed = usage(path).own
        shutil.rmtree(path)
        return freed
    finally:
        os.close(lock)


def _used(folder: Path) -> str:
    return f"{folder}.used"


def try_lock(lock: int) -> bool:
    """True when nobody else has any lock on it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(lock: int, path: str) -> bool:
    """Whether that open file still is the one with that name."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except OSError:
        return False
