"""The root folder of a container: a tmpfs into which every entry of the host's root is bound, and then the mounts.

Rules:
- Nothing is ever created in a folder of the host. A mount point that is missing is made by *mirroring* its parent: a
  tmpfs over it, everything that was in it bound back in, and room for one more name.
- `/proc` is the container's own where the kernel allows it, `/dev/shm` is what the mounts say. All else is the host's.
- What a program writes into such a tmpfs goes with the container: `Root.unsaved` counts it.
- Runs in the container's init, in its own mount namespace; everything goes with that process."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Any

from . import beneath, calls, unsaved  # relative: this program runs without its package, see the package's docstring

_DEVICES = "/.dev"  # the folder of devices as it was, where it had to be mirrored
_HOST = "/.host"  # where the host's root is while the container's is being furnished
_OWN = frozenset({"proc", ".host"})  # entries of the host's root that are not shown


class Root:
    """`ours` says for each mounted path whether new names may be made in it. `tmpfs`: the folders in memory."""

    def __init__(self) -> None:
        self.ours: dict[str, bool] = {"/": True}
        self.tmpfs = ["/"]

    def _may_write(self, path: str) -> bool:
        while path not in self.ours:
            path = os.path.dirname(path)
        return self.ours[path]

    def _mirror(self, folder: str) -> None:
        """Replace a folder by a copy of itself in which names can be made. Its entries are bound, not copied."""
        below = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            mode = stat.S_IMODE(os.fstat(below).st_mode)
            behind = f"/proc/self/fd/{below}"
            names = os.listdir(behind)
            if terminals := "ptmx" in names and not os.path.islink(f"{folder}/ptmx"):
                # This device looks for the folder `pts` beside itself, so it works only where it always was.
                os.mkdir(_DEVICES)
                calls.bind(folder, _DEVICES)
                self.ours[_DEVICES] = False
                names.remove("ptmx")
            calls.mount("tmpfs", folder, "tmpfs", options=f"mode={mode:o}")
            self.ours[folder] = True
            self.tmpfs.append(folder)
            for name in names:
                show(f"{behind}/{name}", f"{folder}/{name}".replace("//", "/"))
                self.ours[f"{folder}/{name}"] = False
            if terminals:
                os.symlink(f"{_DEVICES}/ptmx", f"{folder}/ptmx")
        finally:
            os.close(below)

    def folder(self, path: str) -> str:
        """Make sure that a folder is there; returns its real path."""
        path = os.path.realpath(path)
        if os.path.isdir(path):
            return path
        parent = path
        while not os.path.isdir(parent):
            if os.path.lexists(parent):
                raise OSError(f"{path} cannot be made: {parent} is not a folder")
            parent = os.path.dirname(parent)
        if not self._may_write(parent):
            self._mirror(parent)
        os.makedirs(path, 0o755, exist_ok=True)
        return path

    def _file(self, path: str) -> str:
        path = os.path.realpath(path)
        if os.path.isdir(path):
            raise OSError(f"{path} is a folder, and what should be mounted there is a file")
        if not os.path.lexists(path):
            parent = self.folder(os.path.dirname(path))
            if not self._may_write(parent):
                self._mirror(parent)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        return path

    def mount(self, source: str, target: str, readonly: bool, ours: bool) -> None:
        place = self.folder(target) if os.path.isdir(source) else self._file(target)
        calls.bind(source, place)
        if readonly:
            calls.read_only(place)
        self.ours[place] = ours and not readonly

    def unsaved(self) -> dict[str, Any]:
        """The files that the container's programs have made in the root's own folders, and that go with it."""
        count = unsaved.Count()
        for folder in self.tmpfs:
            if folder != "/dev":
                count.add(folder, folder, self.ours)
        return count.message()


def show(source: str, target: str) -> None:
    """Make an entry of a folder visible elsewhere: links are copied, the rest bound, what is refused is left empty."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    with contextlib.suppress(OSError):
        calls.bind(source, target)


def _descriptor(one: dict[str, Any]) -> int:
    """Of a path beneath a volume, in this mount namespace: nobody can put another thing into its place until it is
    bound. -1 for a mount of a whole volume."""
    if not one.get("inner"):
        return -1
    try:
        return beneath.resolve(one["source"], one["inner"], bool(one.get("make")))
    except OSError as error:
        raise OSError(error.errno, f"subPath {one['inner']!r}: {error.strerror}") from None


def build(at: str, mounts: list[dict[str, Any]], cwd: str, hidden: Sequence[str] = ()) -> Root:
    """Make the root at the empty folder `at` and move into it. Mounts come parents first. `hidden`: folders of the host
    that the container sees empty; what the mounts show of them is seen where it is mounted."""
    calls.mount("none", "/", flags=calls.MS_REC | calls.MS_PRIVATE)
    sources = [(os.path.realpath(one["source"]), _descriptor(one)) for one in mounts]
    calls.mount("tmpfs", at, "tmpfs", options="mode=755")
    for name in os.listdir("/"):
        if name not in _OWN:
            show(f"/{name}", f"{at}/{name}")
    for name in _OWN:
        os.mkdir(f"{at}/{name}")
    calls.pivot_root(at, at + _HOST)
    os.chdir("/")
    # The folder that `at` lies in was bound with what was mounted in it, this root: not to be seen once more in itself.
    with contextlib.suppress(OSError):
        calls.unmount(at)
    try:
        calls.mount("proc", "/proc", "proc", calls.MS_NOSUID | calls.MS_NODEV | calls.MS_NOEXEC)
    except OSError:  # the host's /proc is partly covered, as in a container: then its own may not be seen either
        calls.bind(f"{_HOST}/proc", "/proc")
    root = Root()
    for name in os.listdir("/"):
        if name not in _OWN and not os.path.islink(f"/{name}"):
            root.ours[f"/{name}"] = False
    root.ours["/proc"] = False
    for folder in hidden:
        if os.path.isdir(folder):  # made by a user namespace above the program's: it cannot take the cover away
            calls.mount("tmpfs", folder, "tmpfs", calls.MS_RDONLY | calls.MS_NOSUID | calls.MS_NODEV, "size=4k")
    for one, (source, fd) in sorted(zip(mounts, sources, strict=True), key=lambda pair: str(pair[0]["target"])):
        source = f"/proc/self/fd/{fd}" if fd >= 0 else _HOST + source
        root.mount(source, one["target"], bool(one.get("readonly")), bool(one.get("ours")))
        if fd >= 0:
            os.close(fd)  # a container can look into the descriptors of its init
    root.folder(cwd)
    calls.unmount(_HOST)
    os.rmdir(_HOST)
    return root
