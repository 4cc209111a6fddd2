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
import re
import shutil
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import msgspec

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
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)(?:([KMGT])(i?))?", re.ASCII)


class RetentionLimits(msgspec.Struct, frozen=True):
    """How much of the history is kept."""

    jobs: int = 200  # 0 turns the history off
    size: int = 5_000_000_000  # bytes, all jobs together; the newest job stays whatever its size
    days: int = 90  # after the last change of a record; 0: whatever its age
    log_size: int = 64 << 20  # bytes of one log file: its beginning and its end are kept; the node has the same limit
    pods: int = 10  # of each replica: so many first and so many last ones are kept, with their logs
    events: int = 1000  # of each job: so many first and so many last ones are kept

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RetentionLimits:
        """The defaults, changed by the variables TRAINYARD_HISTORY_JOBS, _SIZE and _DAYS. Raises ValueError."""
        limits = cls()
        names = ("TRAINYARD_HISTORY_JOBS", "TRAINYARD_HISTORY_DAYS", "TRAINYARD_HISTORY_SIZE")
        jobs, days, size = (environment.get(name, "") for name in names)
        if jobs and not _is_number(jobs):
            raise ValueError(
                f"TRAINYARD_HISTORY_JOBS: {jobs!r} is not a number of jobs; write 200, or 0 for no history"
            )
        if days and not _is_number(days):
            raise ValueError(f"TRAINYARD_HISTORY_DAYS: {days!r} is not a number of days; write 90, or 0 for no limit")
        match = _SIZE.fullmatch(size)
        if size and match is None:
            raise ValueError(f"TRAINYARD_HISTORY_SIZE: {size!r} is not a size; write bytes, or such as 500Mi or 1Gi")
        return cls(
            jobs=int(jobs) if jobs else limits.jobs,
            days=int(days) if days else limits.days,
            size=_bytes(match) if match else limits.size,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _bytes(size: re.Match[str]) -> int:
    """The number of bytes that a matched size stands for."""
    power = " KMGT".index(size[2] or " ")
    return int(Fraction(size[1]) * (1024 if size[3] else 1000) ** power)


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
