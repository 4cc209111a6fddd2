"""Where `trainyard ui` finds the windows of this user: a file for each, `NAME.json` in a private folder.

A file is locked as long as its window is open, also when its process is killed: the lock tells whether it is. The file
of a background cluster stays, so that its next window has the same port.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from trainyard.app.background.cluster_folders import state_folder
from trainyard.app.background.folder import make_private
from trainyard.app.history.records import is_held
from trainyard.window.listener import Window

FOLDER = ".windows"  # no cluster has such a name
RUN_PREFIX = "run-"  # of the names of windows of `trainyard run`; the number of the process follows


class OpenWindow(msgspec.Struct, frozen=True):
    """A window that is open. `key` gives links to it (Sessions.key); `name`: of its cluster, or run-PID."""

    name: str
    url: str
    key: str


class WindowFile:
    """The file of one window."""

    def __init__(self, name: str) -> None:
        self._path = _folder() / f"{name}.json"
        self._lock = -1
        self._made: list[Path] = []  # the folders that were made for it, the innermost first

    @property
    def last_port(self) -> int:
        """The port of the last window of that name; 0 when there was none."""
        window = _read(self._path)
        port = window.url.partition("://")[2].partition("/")[0].rpartition(":")[2] if window else ""
        return int(port) if port.isdecimal() else 0

    def write(self, window: OpenWindow) -> None:
        """Publish the window. Raises OSError."""
        self._made = [folder for folder in self._path.parents if not folder.exists()]
        make_private(self._path.parent)
        self._remove_left()
        new_file = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._lock = os.open(new_file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, msgspec.json.encode(window))
        new_file.rename(self._path)

    def close(self, *, remove: bool) -> None:
        """The window is closed. Idempotent."""
        if self._lock < 0:
            return
        os.close(self._lock)
        self._lock = -1
        if remove:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: another window, or a history
                for folder in (self._path.parent, *self._made[1:]):
                    folder.rmdir()

    def _remove_left(self) -> None:
        """Remove the files of runs that were killed."""
        for path in self._path.parent.glob(f"{RUN_PREFIX}*.json"):
            if not is_held(path):
                path.unlink(missing_ok=True)


def forget_window(name: str) -> None:
    """Remove the file that keeps port and key of the window of a cluster, which is deleted."""
    with contextlib.suppress(OSError):  # nothing of the cluster uses it any more
        (_folder() / f"{name}.json").unlink()


def open_windows() -> list[OpenWindow]:
    """The windows of this user that are open, the newest first."""
    with contextlib.suppress(OSError):
        paths = sorted(_folder().glob("[!.]*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        return [window for path in paths if is_held(path) and (window := _read(path))]
    return []


def _read(path: Path) -> OpenWindow | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=OpenWindow)
    except (OSError, msgspec.MsgspecError):
        return None


def _folder() -> Path:
    return state_folder() / FOLDER


class RegisteredWindow:
    """A window that `trainyard ui` finds by `name`. `is_lasting`: the next window of that name should have the same
    port."""

    def __init__(self, name: str, window: Window, *, is_lasting: bool = False) -> None:
        self.window = window
        self._name, self._is_lasting = name, is_lasting
        self._file: WindowFile | None = None

    async def start(self) -> None:
        """Open the window. Raises OSError and BackgroundError, after which the window is closed."""
        self._file = WindowFile(self._name)
        try:
            await self.window.start(self._file.last_port if self._is_lasting else 0)
        except OSError:
            await self.window.start()
        try:
            self._file.write(OpenWindow(self._name, self.window.url, self.window.sessions.key))
        except OSError:
            await self.stop()
            raise

    async def stop(self, reason: str = "the cluster stops") -> None:
        """Close the window. Idempotent."""
        if self._file is not None:
            self._file.close(remove=not self._is_lasting)
        await self.window.stop(reason)
