"""Safe path resolution beneath a directory whose content a container can change.

Rules:
- Each component is opened from the descriptor of its parent with O_NOFOLLOW, so that a concurrent rename cannot
  redirect the resolution.
- Paths that the node itself creates (logs, termination messages, folders of volumes) contain no symbolic links: a link
  there was made by a program in a container, and is refused. A subPath may contain relative links that stay beneath the
  volume.
- A file is opened with O_NONBLOCK and must be a regular one: an open of a FIFO would block until its other end is
  opened."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_LINKS = 40  # the kernel's limit for one path


def open_directory(root: str, path: str = "", make: bool = False, mode: int = 0o700) -> int:
    """A descriptor of the directory `path` beneath `root`, resolved without symbolic links. `make`: create missing
    directories with `mode`. Raises OSError."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _components(path):
            if make:
                _mkdir_if_missing(name, mode, fd)
            child = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = child
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_directory(root: str, path: str, mode: int) -> None:
    """Create the directory `path` beneath `root` if missing, without following symbolic links, and set its mode. Raises
    OSError."""
    fd = open_directory(root, path, make=True)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def open_file(root: str, path: str) -> int:
    """A descriptor to read the regular file `path` beneath `root`. Raises OSError, also for other types of files."""
    folder, _, name = path.rpartition("/")
    parent = open_directory(root, folder)
    try:
        fd = os.open(name, _READ, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def create_file(root: str, path: str, mode: int = 0o600, folders: int = 0o700) -> int:
    """Create a new, empty file `path` beneath `root`; returns a descriptor for reading and appending. The file has
    `mode` independent of the umask. An existing file of this name is removed first; missing directories are created
    with the mode `folders`. Raises OSError."""
    folder, _, name = path.rpartition("/")
    parent = open_directory(root, folder, make=True, mode=folders)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
    finally:
        os.close(parent)
    os.fchmod(fd, mode)
    return fd


def resolve(root: str, path: str, make: bool = False) -> int:
    """An O_PATH descriptor of `path` beneath `root`. Relative symbolic links are followed when they stay beneath
    `root`. `make`: create missing directories with mode 0755. Raises OSError."""
    directories = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    remaining, links = _components(path)[::-1], 0
    try:
        while remaining:
            name = remaining.pop()
            if name == "..":
                if len(directories) == 1:
                    raise OSError(errno.EXDEV, "leads out of the volume", path)
                os.close(directories.pop())
                continue
            if make:
                _mkdir_if_missing(name, 0o755, directories[-1])
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directories[-1])
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                directories.append(fd)
                continue
            target = os.readlink("", dir_fd=fd)
            os.close(fd)
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, "leads out of the volume", path)
            remaining += [part for part in target.split("/") if part not in ("", ".")][::-1]
        return directories.pop()
    finally:
        for fd in directories:
            os.close(fd)


def _components(path: str) -> list[str]:
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EINVAL, "must be relative and without '..'", path)
    return [part for part in path.split("/") if part not in ("", ".")]


def _mkdir_if_missing(name: str, mode: int, parent: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
