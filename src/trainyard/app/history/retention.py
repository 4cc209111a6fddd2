"""How much of the history is kept, and the removal of what exceeds these limits.

Rules:
- The oldest jobs are removed first. A job that a live process records is never removed, nor is the newest one.
- A record that the user keeps (`trainyard history keep`) is never removed, and counts for no limit.
- Logs in a folder that the user chose (--logs-dir) belong to the user: this module does not touch them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import (
    KEPT,
    RECORDERS,
    RECORDING,
    RESULT,
    HistoryRecord,
    is_held,
    is_recorded,
    job_folders,
    read_record,
    write_file,
)
from trainyard.app.job_files import open_file, status_of
from trainyard.objects.log_files import disk_size, hole

_REMOVED = ".removed-"


def mark_interrupted(root: Path) -> None:
    """Write the result "Interrupted" into each record whose process was killed, and remove lock files without an owner.
    Raises OSError."""
    for folder in job_folders(root):
        if (folder / RECORDING).exists() and not is_recorded(folder):
            if (record := read_record(folder)) is not None:
                write_file(folder / RESULT, json.dumps(record.content))
            (folder / RECORDING).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for path in (root / RECORDERS).iterdir():
            if not is_held(path):
                path.unlink(missing_ok=True)


def prune(root: Path, limits: RetentionLimits, now: float) -> None:
    """Remove the oldest jobs beyond the limits, and the middle of logs that are too long; running jobs are not
    changed. Does nothing while another process prunes. `now`: Unix seconds. Raises OSError."""
    with _exclusive(root) as locked:
        if not locked:
            return
        sizes: dict[Path, int] = {}
        for folder in job_folders(root):
            recorded = is_recorded(folder)
            sizes[folder] = _trim_and_measure(folder, 0 if recorded else limits.log_size)
        limited = {folder: size for folder, size in sizes.items() if not (folder / KEPT).exists()}
        total, count, newest = sum(limited.values()), len(limited), max(sizes, default=None)
        for folder, size in limited.items():
            is_beyond = total > limits.size or count > limits.jobs or _is_older(folder, limits.days, now)
            if is_beyond and folder != newest and not is_recorded(folder):
                remove_record(folder)
                total, count = total - size, count - 1
        for leftover in root.iterdir():
            if leftover.name.startswith(_REMOVED):
                shutil.rmtree(leftover, ignore_errors=True)


def _is_older(folder: Path, days: int, now: float) -> bool:
    """Whether the record was last changed more than so many days before `now`; 0 days are no limit."""
    try:
        return days > 0 and status_of(folder / RESULT, folder).st_mtime < now - 86400 * days
    except OSError:
        return False


def keep(record: HistoryRecord, kept: bool) -> None:
    """Exempt a record from the limits, or no longer. Raises OSError."""
    if kept:
        write_file(record.folder / KEPT, "")
    else:
        (record.folder / KEPT).unlink(missing_ok=True)


def remove_record(folder: Path) -> None:
    """Rename the folder first, so that no process reads half a record, then remove it. Raises OSError."""
    removed = folder.with_name(f"{_REMOVED}{folder.name}")
    folder.rename(removed)
    shutil.rmtree(removed)


def _trim_and_measure(folder: Path, max_log_size: int) -> int:
    """The bytes on disk of all files in the folder. Logs longer than `max_log_size` bytes are cut; 0 cuts none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                if max_log_size and path.lstat().st_size > max_log_size and name.endswith(".log"):
                    cut_log(path, max_log_size)
                stat = path.lstat()
                total += disk_size(stat.st_size, stat.st_blocks)
    return total


def cut_log(path: Path, max_size: int) -> None:
    """Cut a log to `max_size` bytes in whole lines: a quarter from its beginning, three quarters from its end, and a
    note between them. Raises OSError."""
    new_file = path.with_name(f".{path.name}.new")
    new_file.unlink(missing_ok=True)  # of a process that was killed, or had no space, while it wrote this
    with open_file(path, path.parent) as log, new_file.open("xb") as kept:
        size = log.seek(0, os.SEEK_END)
        # The part that the node left out while the program ran; the note about it is the first line of `last`.
        hole_start, hole_end = hole(log) or (size, 0)
        log.seek(0)
        first = log.read(min(max_size // 4, hole_start))
        first = first[: first.rfind(b"\n") + 1] or first
        log.seek(max(size - (max_size - max_size // 4), hole_end))
        last = log.read()
        last = last[last.find(b"\n") + 1 :] or last
        left_out = size - len(first) - len(last)
        note = f"[trainyard: {left_out} bytes of this log were removed to limit the size of the history]\n"
        kept.write(first + (b"" if first.endswith(b"\n") else b"\n") + note.encode() + last)
    new_file.chmod(0o600)
    new_file.replace(path)


@contextlib.contextmanager
def _exclusive(root: Path) -> Iterator[bool]:
    """Yield whether this process got the lock; do not wait for it."""
    file = os.open(root / ".prune", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
