"""Mount points in folders of this machine (network namespace): a missing one is created there, as a kubelet does, and
removed when no pod uses it.

Otherwise the container would get a copy of the folder in memory (supervisor/root_filesystem.py), and new files beside
the mount point would be removed with the pod.

Rules:
- A mount point in a system folder, or in one that the user may not write, is left to that copy, unless the folder is
  below a folder in which the program works: there the pod fails with the fix.
- Only an empty mount point that this node has created is removed. The kernel detaches the mounts of other mount
  namespaces from a removed mount point, so each pod of each node holds a shared lock on those that it uses, and they
  are removed under an exclusive lock only.
- Locks and removals are best effort: on a file system without locks, mount points stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Sequence

from trainyard.node.kubelet.volumes.volumes import FatalStartError
from trainyard.node.sandbox.supervisor_client import Mount

_ROOT_USER = 0
# Root may create names in these, but other programs of this machine read them.
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_SYSTEM_STATE = "/var"
_TEMPORARY_FILES = "/var/tmp"  # noqa: S108  (a folder of the user below one of the system)


class MountPoints:
    """The mount points of the pods of one node."""

    def __init__(self) -> None:
        self._created: dict[str, tuple[int, int]] = {}  # path -> device and inode
        self._users: dict[str, set[str]] = {}  # path -> uids of pods
        self._locks: dict[str, int] = {}  # path -> descriptor with a shared lock

    def create(self, pod: str, mounts: Sequence[Mount], cwd: str, working_directory: str) -> None:
        """Create the missing mount points of a container, and its working directory `cwd`. `working_directory`: the
        folder that the pod's annotation names. Raises FatalStartError where a folder of the user cannot have one."""
        project_folders = [os.path.realpath(folder) for folder in (cwd, working_directory) if folder]
        for target, is_file in [*((mount.target, _is_file(mount)) for mount in mounts), (cwd, False)]:
            if path := _path_on_machine(target, mounts):
                self._create(pod, target, path, is_file, [folder for folder in project_folders if folder != "/"])

    def release(self, pod: str) -> None:
        """Remove the mount points that were created and that no pod uses any more."""
        for users in self._users.values():
            users.discard(pod)
        for path in sorted(self._users, reverse=True):  # subfolders first
            if not self._users[path]:
                del self._users[path]
                self._remove(path, self._created.pop(path, None))

    def _create(self, pod: str, target: str, path: str, is_file: bool, project_folders: list[str]) -> None:
        missing = _missing_folders(path)
        parent = os.path.dirname(missing[0]) if missing else path
        in_project = any(_is_below(parent, folder) for folder in project_folders)
        if not os.path.isdir(parent) and missing:
            return  # a file is in the way: the container's start fails with the path
        if missing and (parent == "/" or (not in_project and _is_system_folder(parent))):
            return
        for name in missing:
            try:
                _create_entry(name, is_file and name == path)
            except OSError as error:
                if in_project:
                    command = f"touch {path}" if is_file else f"mkdir -p {path}"
                    raise FatalStartError(
                        f"the mount point {target} does not exist and cannot be created: {error.strerror}; create it "
                        f"(`{command}`) as a user who may write {parent}, or mount at another path"
                    ) from None
                break
            status = os.lstat(name)
            self._created[name] = status.st_dev, status.st_ino
        for name in [*missing, path, *_parents_of(path, self._created)]:
            if os.path.exists(name):
                self._use(pod, name)

    def _use(self, pod: str, path: str) -> None:
        self._users.setdefault(path, set()).add(pod)
        if path not in self._locks:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._locks[path] = fd
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _remove(self, path: str, created: tuple[int, int] | None) -> None:
        fd = self._locks.pop(path, None)
        if fd is None:
            return
        with contextlib.suppress(OSError):
            if created:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.lstat(path)
                if (status.st_dev, status.st_ino) == created and stat.S_ISDIR(status.st_mode):
                    os.rmdir(path)
                elif (status.st_dev, status.st_ino) == created and not status.st_size:
                    os.unlink(path)
        os.close(fd)


def _create_entry(path: str, is_file: bool) -> None:
    with contextlib.suppress(FileExistsError):
        if is_file:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        else:
            os.mkdir(path, 0o755)


def _is_file(mount: Mount) -> bool:
    """A missing subPath is created as a folder."""
    return os.path.isfile(os.path.join(mount.source, mount.subpath) if mount.subpath else mount.source)


def _path_on_machine(target: str, mounts: Iterable[Mount]) -> str:
    """The real path of a mount point on this machine; "" where it is in a folder of the pod, or in a folder that is
    mounted read-only."""
    above = [mount for mount in mounts if mount.target != target and _is_below(target, mount.target)]
    if not above:
        return os.path.realpath(target)
    nearest = max(above, key=lambda mount: len(mount.target))
    if nearest.pod_owned or nearest.readonly:
        return ""
    folder = os.path.join(nearest.source, nearest.subpath)
    return os.path.realpath(os.path.join(folder, os.path.relpath(target, nearest.target)))


def _missing_folders(path: str) -> list[str]:
    """The paths that do not exist, of `path` and the folders above it; the highest first."""
    missing: list[str] = []
    while not os.path.lexists(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _parents_of(path: str, created: Iterable[str]) -> list[str]:
    return [folder for folder in created if folder != path and _is_below(path, folder)]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _is_system_folder(path: str) -> bool:
    """Whether the user is root and the folder is one of the system. What another user may write is the user's."""
    if os.geteuid() != _ROOT_USER:
        return False
    return any(_is_below(path, folder) for folder in _SYSTEM) or (
        _is_below(path, _SYSTEM_STATE) and not _is_below(path, _TEMPORARY_FILES)
    )
