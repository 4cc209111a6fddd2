"""Where `trainyard ui` finds the page servers of this user: a file for each, `NAME.json` in a private folder.

A file is locked as long as its page server runs, and no longer when its process is killed. The file of a background
cluster stays, so that its next page server has the same port.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainyard.app.background.cluster_folders import state_folder
from trainyard.app.background.folder import make_private
from trainyard.app.history.records import is_held

if TYPE_CHECKING:
    from trainyard.page.listener import PageServer

FOLDER = ".page-servers"  # no cluster has such a name
RUN_PREFIX = "run-"  # of the names of page servers of `trainyard run`; the number of the process follows


class RunningServer(msgspec.Struct, frozen=True):
    """A page server that runs. `key` gives links to it (Sessions.key); `name`: of its cluster, or run-PID. Of a run
    `kubeconfig` is the path of the kubeconfig of its cluster, and `folder` the one that it was started in."""

    name: str
    url: str
    key: str
    kubeconfig: str = ""
    folder: str = ""


class ServerFile:
    """The file of one page server."""

    def __init__(self, name: str) -> None:
        self._path = _folder() / f"{name}.json"
        self._lock = -1
        self._made: list[Path] = []  # the folders that were made for it, the innermost first

    @property
    def last_port(self) -> int:
        """The port of the last page server of that name; 0 when there was none."""
        page_server = _read(self._path)
        port = page_server.url.partition("://")[2].partition("/")[0].rpartition(":")[2] if page_server else ""
        return int(port) if port.isdecimal() else 0

    def write(self, page_server: RunningServer) -> None:
        """Publish the page server. Raises OSError."""
        self._made = [folder for folder in self._path.parents if not folder.exists()]
        make_private(self._path.parent)
        self._remove_left()
        new_file = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._lock = os.open(new_file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, msgspec.json.encode(page_server))
        new_file.rename(self._path)

    def close(self, *, remove: bool) -> None:
        """The page server has stopped. Idempotent."""
        if self._lock < 0:
            return
        os.close(self._lock)
        self._lock = -1
        if remove:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: another page server, or a history
                for folder in (self._path.parent, *self._made[1:]):
                    folder.rmdir()

    def _remove_left(self) -> None:
        """Remove the files of runs that were killed."""
        for path in self._path.parent.glob(f"{RUN_PREFIX}*.json"):
            if not is_held(path):
                path.unlink(missing_ok=True)


def forget_server(name: str) -> None:
    """Remove the file that keeps port and key of the page server of a cluster, which is deleted."""
    with contextlib.suppress(OSError):  # nothing of the cluster uses it any more
        (_folder() / f"{name}.json").unlink()


def running_servers() -> list[RunningServer]:
    """The page servers of this user that run, the newest first."""
    with contextlib.suppress(OSError):
        paths = sorted(_folder().glob("[!.]*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        return [page_server for path in paths if is_held(path) and (page_server := _read(path))]
    return []


def run_kubeconfigs() -> list[Path]:
    """The kubeconfigs of the runs of this user: first those that were started in this folder, the newest first."""
    runs = [page_server for page_server in running_servers() if page_server.kubeconfig]
    runs.sort(key=lambda run: run.folder != os.getcwd())
    return [Path(run.kubeconfig) for run in runs]


def _read(path: Path) -> RunningServer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunningServer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _folder() -> Path:
    return state_folder() / FOLDER


class RegisteredServer:
    """A page server that `trainyard ui` finds by `name`. `is_lasting`: the next of that name should have the same
    port. `kubeconfig`: of the cluster of a run, which commands that read jobs find by it."""

    def __init__(
        self, name: str, page_server: PageServer, *, is_lasting: bool = False, kubeconfig: Path | None = None
    ) -> None:
        self.page_server = page_server
        self._name, self._is_lasting, self._kubeconfig = name, is_lasting, kubeconfig
        self._file: ServerFile | None = None

    async def start(self) -> None:
        """Start the page server. Raises OSError and BackgroundError, after which it has stopped."""
        self._file = ServerFile(self._name)
        try:
            await self.page_server.start(self._file.last_port if self._is_lasting else 0)
        except OSError:
            await self.page_server.start()
        try:
            access = (str(self._kubeconfig), str(Path.cwd())) if self._kubeconfig else ("", "")
            self._file.write(RunningServer(self._name, self.page_server.url, self.page_server.sessions.key, *access))
        except OSError:
            await self.stop()
            raise

    async def stop(self, reason: str = "the cluster stops") -> None:
        """Stop the page server. Idempotent."""
        if self._file is not None:
            self._file.close(remove=not self._is_lasting)
        await self.page_server.stop(reason)
