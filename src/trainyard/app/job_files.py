"""Reading files that a program of a job may have written, or put something else in the place of: logs, the records of
the history, event files, metrics.

In the network *shared* a program runs as the user whose files these are. Rules, for every such file:
- Only a regular file is opened: a FIFO or a device would block its reader.
- Below `root` no symbolic link is followed, be it the file or a folder on the way: it would show the content of another
  file, also in what is given to others. `root` itself may be a link.
- What is read whole has a limit.
- An event loop reads in `in_thread`, whose threads nothing else waits for: a file system that hangs stops no job.
`make lint` finds what reads such a file in another way (tools/job_file_reads.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache, partial
from io import FileIO
from pathlib import Path
from typing import ParamSpec, TypeVar

MAX_BYTES = 64 << 20  # of a file that is read whole: the result.json of 10,000 pods has a fourth of it
THREADS = 4

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def open_file(path: Path, root: Path) -> FileIO:
    """The regular file at `path`, which is below `root`, unbuffered, for reading. Raises OSError."""
    from trainyard.node.supervisor.safe_paths import open_file as open_beneath  # commands that read none do not need it

    try:
        return os.fdopen(open_beneath(str(root), str(path.relative_to(root))), "rb", buffering=0)
    except ValueError as error:  # a damaged record may have names with a NUL, or that begin with /
        raise OSError(errno.EINVAL, "is no name of a file", str(path)) from error


def read_bytes(path: Path, root: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file below `root`. Raises OSError, also for one of more than `limit` bytes."""
    with open_file(path, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"has more than {limit} bytes", str(path))
        return file.read(size) or b""


def status_of(path: Path, root: Path) -> os.stat_result:
    """The size and the times of a regular file below `root`. Raises OSError."""
    with open_file(path, root) as file:
        return os.fstat(file.fileno())


def matching_files(root: Path, pattern: str) -> Iterator[Path]:
    """The regular files below `root` whose path matches the pattern: `*/attempt-*/metrics.jsonl`, as of Path.glob. What
    cannot be listed has none. In the order of the folders."""
    name_pattern, _, rest = pattern.partition("/")
    try:
        with os.scandir(root) as entries:
            matches = [entry for entry in entries if fnmatchcase(entry.name, name_pattern)]
    except OSError:
        return
    for entry in matches:
        if not rest and entry.is_file(follow_symlinks=False):
            yield root / entry.name
        elif rest and entry.is_dir(follow_symlinks=False):
            yield from matching_files(root / entry.name, rest)


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


async def in_thread(function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Call a function that reads such files, in one of THREADS threads."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(function, *args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "job-files")
