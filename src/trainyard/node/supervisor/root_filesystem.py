"""The root folder of a container: a tmpfs with bind mounts of every entry of the host's root, and then the mounts.

Rules:
- Nothing is created in folders of the host. A missing mount point is created by *mirroring* its parent: a tmpfs is
  mounted over the parent, its entries are bind mounted back, and new names can be created in it.
- `/proc` is the container's own where the kernel allows it, `/dev/shm` comes from the mounts. All else is the host's.
- Files that a program writes to such a tmpfs are removed with the container: `Root.unsaved` counts them.
- Runs in the container's init, in its own mount namespace; all mounts end with that process."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from typing import Any

from . import (  # relative: this program runs without its package, see the package's docstring
    safe_paths,
    syscalls,
    unsaved_count,
)

_DEVICES = "/.dev"  # bind mount of the original /dev, when it had to be mirrored
_HOST = "/.host"  # the host's root while that of the container is built
# Virtual consoles and serial lines: most entries of /dev on most machines. A container of Kubernetes has none of them.
_CONSOLE = re.compile(r"(ttyS?|vcs[au]?)[0-9]+|vcs[au]?")
_NOT_BOUND = frozenset({"proc", ".host"})  # entries of the host's root that are not bind mounted


class Root:
    """`writable`: mounted path -> whether new names may be created in it. `tmpfs`: the folders in memory."""

    def __init__(self) -> None:
        self.writable: dict[str, bool] = {"/": True}
        self.tmpfs = ["/"]

    def _may_write(self, path: str) -> bool:
        while path not in self.writable:
            path = os.path.dirname(path)
        return self.writable[path]

    def _mirror(self, folder: str) -> None:
        """Mount a tmpfs over a folder and bind mount its entries back, so that names can be created in it. A folder
        that this user may not list, such as /root, is empty then."""
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            descriptor_path = f"/proc/self/fd/{descriptor}"
            try:
                names = os.listdir(descriptor_path)
            except PermissionError:
                names = []
            links: list[str] = []
            if "ptmx" in names and not os.path.islink(f"{folder}/ptmx"):
                # The ptmx device needs the folder `pts` beside it, so it works only in the original folder. Consoles
                # would work, but bind mounts of all of them took a quarter of the CPU time of a container's init.
                links = [name for name in names if name == "ptmx" or _CONSOLE.fullmatch(name)]
                os.mkdir(_DEVICES)
                syscalls.bind(folder, _DEVICES)
                self.writable[_DEVICES] = False
            syscalls.mount("tmpfs", folder, "tmpfs", options=f"mode={mode:o}")
            self.writable[folder] = True
            self.tmpfs.append(folder)
            for name in set(names).difference(links):
                bind_entry(f"{descriptor_path}/{name}", f"{folder}/{name}".replace("//", "/"))
                self.writable[f"{folder}/{name}"] = False
            for name in links:
                os.symlink(f"{_DEVICES}/{name}", f"{folder}/{name}")
        finally:
            os.close(descriptor)

    def folder(self, path: str) -> str:
        """Create the folder if missing; returns its real path. Raises OSError."""
        path = os.path.realpath(path)
        if os.path.isdir(path):
            return path
        parent = path
        while not os.path.isdir(parent):
            if os.path.lexists(parent):
                raise OSError(f"{path} cannot be created: {parent} is not a folder")
            parent = os.path.dirname(parent)
        if not self._may_write(parent):
            self._mirror(parent)
        os.makedirs(path, 0o755, exist_ok=True)
        return path

    def _file(self, path: str) -> str:
        path = os.path.realpath(path)
        if os.path.isdir(path):
            raise OSError(f"{path} is a folder, but a file should be mounted there")
        if not os.path.lexists(path):
            parent = self.folder(os.path.dirname(path))
            if not self._may_write(parent):
                self._mirror(parent)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        return path

    def mount(self, source: str, target: str, readonly: bool, pod_owned: bool) -> None:
        """Bind mount `source` at the path `target` of the container. `pod_owned`: it is in the pod's own folder, so
        that mount points may be created in it."""
        mount_point = self.folder(target) if os.path.isdir(source) else self._file(target)
        syscalls.bind(source, mount_point)
        if readonly:
            syscalls.remount_read_only(mount_point)
        self.writable[mount_point] = pod_owned and not readonly

    def unsaved(self) -> dict[str, Any]:
        """The count of files that the container's programs have written to the tmpfs folders (see unsaved_count.py)."""
        count = unsaved_count.FileCount()
        for folder in self.tmpfs:
            if folder != "/dev":
                count.add(folder, folder, self.writable)
        return count.message()


def bind_entry(source: str, target: str) -> None:
    """Show the entry `source` of a folder at `target`: symbolic links are copied, others bind mounted; where the kernel
    refuses that, the entry stays empty."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    with contextlib.suppress(OSError):
        syscalls.bind(source, target)


def _subpath_descriptor(mount: dict[str, Any]) -> int:
    """An O_PATH descriptor of the subPath of a mount, in this mount namespace: it cannot be replaced until it is bind
    mounted. -1 for a mount of a whole volume. Raises OSError."""
    if not mount.get("subpath"):
        return -1
    try:
        return safe_paths.resolve(mount["source"], mount["subpath"], bool(mount.get("create")))
    except OSError as error:
        raise OSError(error.errno, f"subPath {mount['subpath']!r}: {error.strerror}") from None


def build(at: str, mounts: list[dict[str, Any]], cwd: str, hidden: Sequence[str] = ()) -> Root:
    """Build the root at the empty folder `at` and pivot into it. Mounts are done in the order of their targets, parents
    first. `hidden`: folders of the host that the container sees empty; mounts with sources in them are not affected.
    Raises OSError."""
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    sources = [(os.path.realpath(mount["source"]), _subpath_descriptor(mount)) for mount in mounts]
    syscalls.mount("tmpfs", at, "tmpfs", options="mode=755")
    for name in os.listdir("/"):
        if name not in _NOT_BOUND:
            bind_entry(f"/{name}", f"{at}/{name}")
    for name in _NOT_BOUND:
        os.mkdir(f"{at}/{name}")
    syscalls.pivot_root(at, at + _HOST)
    os.chdir("/")
    # The bind mount of the folder around `at` contains this root's own mount, which must not show up inside of it.
    with contextlib.suppress(OSError):
        syscalls.unmount(at)
    try:
        syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    except OSError:  # the host's /proc has mounts over it, as in a container: then the kernel refuses a new one
        syscalls.bind(f"{_HOST}/proc", "/proc")
    root = Root()
    for name in os.listdir("/"):
        if name not in _NOT_BOUND and not os.path.islink(f"/{name}"):
            root.writable[f"/{name}"] = False
    root.writable["/proc"] = False
    for folder in hidden:
        if os.path.isdir(folder):  # mounted by the parent user namespace, so the program cannot unmount it
            syscalls.mount(
                "tmpfs", folder, "tmpfs", syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=4k"
            )
    for mount, (source, fd) in sorted(zip(mounts, sources, strict=True), key=lambda pair: str(pair[0]["target"])):
        source = f"/proc/self/fd/{fd}" if fd >= 0 else _HOST + source
        root.mount(source, mount["target"], bool(mount.get("readonly")), bool(mount.get("pod_owned")))
        if fd >= 0:
            os.close(fd)  # a program could use the descriptors of its init through /proc
    root.folder(cwd)
    syscalls.unmount(_HOST)
    os.rmdir(_HOST)
    return root
