"""Paths resolved beneath a directory whose content a container can change.

Rules:
- One component at a time, from an open descriptor, with O_NOFOLLOW: what is renamed meanwhile cannot lead elsewhere.
- What the node itself makes (logs, termination messages, folders of volumes) has no symbolic link on its way: one that
  is there was put there by a program, and is refused. A subPath may have relative links that stay beneath the volume.
- A file is opened with O_NONBLOCK and must be a regular one: to open a FIFO would wait for its other end."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows in one path


def open_directory(root: str, path: str = "", make: bool = False, mode: int = 0o700) -> int:
    """A descriptor of the directory `path` beneath `root`, no link on its way. `make`: make what is missing, with that
    mode. Raises OSError."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _components(path):
            if make:
                _make(name, mode, fd)
            below = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_directory(root: str, path: str, mode: int) -> None:
    """Make sure that the directory `path` is beneath `root`, no link on its way, with that mode. Raises OSError."""
    fd = open_directory(root, path, make=True)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def open_file(root: str, path: str) -> int:
    """A descriptor to read the regular file `path` beneath `root`. Raises OSError, also for what is no regular file."""
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
    """A descriptor to read a new, empty file `path` beneath `root`, and to append to it, with that mode whatever the
    umask; what was there under this name is removed, and folders that are missing are made with the mode `folders`.
    Raises OSError."""
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
    """An O_PATH descriptor of what `path` is beneath `root`. Relative links are followed where they stay beneath it.
    `make`: make directories that are missing, 0755. Raises OSError."""
    above = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    todo, links = _components(path)[::-1], 0
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                if len(above) == 1:
                    raise OSError(errno.EXDEV, "leads out of the volume", path)
                os.close(above.pop())
                continue
            if make:
                _make(name, 0o755, above[-1])
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above[-1])
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                above.append(fd)
                continue
            target = os.readlink("", dir_fd=fd)
            os.close(fd)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, "leads out of the volume", path)
            todo += [part for part in target.split("/") if part not in ("", ".")][::-1]
        return above.pop()
    finally:
        for fd in above:
            os.close(fd)


def _components(path: str) -> list[str]:
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EINVAL, "must be relative and without '..'", path)
    return [part for part in path.split("/") if part not in ("", ".")]


def _make(name: str, mode: int, parent: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
