"""Background clusters (`trainyard up`): start, stop and removal. cluster_folders.py says which files a cluster has.

Rules:
- Only `Background.delete` removes a state: the user asks for it by an option, and is shown what is removed.
- This module and those that it imports load nothing heavy: `trainyard status` must be quick.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from trainyard.app.background.cluster_folders import (
    CLUSTER_NAME,
    HISTORY,
    STALL,
    BackgroundError,
    cluster_names,
    command_line,
    folder_error,
    state_folder,
)
from trainyard.app.background.daemon_process import KILL_TIMEOUT, DaemonProcess, Print
from trainyard.app.background.file_locks import exclusive
from trainyard.app.background.folder import remove

STALL_AGE = 60.0  # seconds after which a stall is no news


def background_of(kubeconfig: str) -> Background | None:
    """The background cluster whose kubeconfig has this path; None for any other file."""
    clusters = (Background(name) for name in cluster_names())
    return next((cluster for cluster in clusters if str(cluster.kubeconfig) == kubeconfig), None)


class Background:
    """The background cluster with the given name."""

    def __init__(self, name: str = "default") -> None:
        if not CLUSTER_NAME.fullmatch(name):
            raise BackgroundError(
                f"--name: {name!r} is not a name; write up to 40 lower-case letters, digits and '-'", 2
            )
        if name == HISTORY:
            raise BackgroundError(f"--name: {name} is the folder of the history of all jobs; choose another name", 2)
        self.name = name
        self.folder = state_folder() / name
        self._daemon = DaemonProcess(self.folder)

    @property
    def kubeconfig(self) -> Path:
        """The file with the address and credentials of this cluster."""
        return self.folder / "kubeconfig"

    @property
    def state(self) -> Path:
        """The folder with what the cluster keeps over a restart: objects, certificates, volumes."""
        return self.folder / "state"

    @property
    def context(self) -> str:
        """The name of the cluster's context, cluster and user in a kubeconfig."""
        return f"trainyard-{self.name}"

    @property
    def log_path(self) -> Path:
        """The log file of the daemon."""
        return self._daemon.log_path

    @property
    def daemon_alive(self) -> bool:
        """True while a daemon process lives: starting, ready or shutting down. Raises BackgroundError."""
        return self._daemon.alive

    @property
    def daemon_killed(self) -> bool:
        """True when the daemon ended without stopping the cluster: `kill -9`, or a power failure of the machine."""
        return not self.daemon_alive and (self.folder / "cluster.json").exists()

    def down_reason(self) -> str:
        """One clause that says why the cluster is not running, with the command that starts it."""
        up = f"`{self.word('up')}`"
        if self.daemon_killed:
            return f"the daemon of the cluster {self.name} was killed; its jobs and files are kept: go on with {up}"
        if self.state.exists():
            return f"the cluster {self.name} is not up: go on with {up}"
        return f"no cluster: start one with {up}"

    def facts(self) -> dict[str, Any] | None:
        """The content of cluster.json: pid, since, network, server, folder, again. None while the cluster is not
        ready."""
        if not self.daemon_alive:
            return None
        try:
            facts = json.loads((self.folder / "cluster.json").read_bytes())
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def longest_stall(self) -> tuple[float, str] | None:
        """How many seconds the daemon's event loop answered nobody, and where it was; None if it always did in the last
        minute. Also while it lasts."""
        try:
            stall = json.loads((self.folder / STALL).read_bytes())
            age = time.time() - float(stall["time"])
            return (float(stall["seconds"]), str(stall["where"])) if 0 <= age < STALL_AGE else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def merged_kubeconfigs(self) -> list[Path]:
        """The user's kubeconfigs into which the cluster was written."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return [Path(line) for line in (self.folder / "merged").read_text().splitlines() if line]
        return []

    def add_merged_kubeconfig(self, kubeconfig: Path) -> None:
        """Record that the cluster was written into this kubeconfig."""
        merged = self.merged_kubeconfigs()
        if kubeconfig not in merged:
            self._write("merged", "".join(f"{path}\n" for path in [*merged, kubeconfig]))

    def kept_options(self) -> dict[str, Any]:
        """The options that the last `up` has stored with `keep_options`. Raises BackgroundError for a file that cannot
        be read."""
        try:
            kept = json.loads((self.folder / "options.json").read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            kept = None
        if not isinstance(kept, dict):
            raise BackgroundError(
                f"{self.folder / 'options.json'} cannot be read: remove it, and give the options again"
            )
        return kept

    def keep_options(self, given_options: dict[str, Any]) -> None:
        """Store the options of `up` that were given on the command line, for the next `up` of this cluster."""
        self._write("options.json", json.dumps(given_options))

    def _write(self, name: str, text: str) -> None:
        """Replace the file of that name, mode 0600, in one step."""
        new_file = self.folder / f"{name}.new"
        new_file.write_text(text)
        new_file.chmod(0o600)
        new_file.replace(self.folder / name)

    # --- up

    def start(self, options: dict[str, Any], say: Print, fresh: bool = False) -> bool:
        """Start the cluster, and return when it is ready; False when it already was. With `fresh` the cluster starts
        empty, and its previous state is moved to aside/. Raises BackgroundError."""
        with exclusive(self.folder):
            if self.facts() is not None:
                if fresh:
                    raise BackgroundError(f"the cluster {self.name} is up; stop it first: {self.word('down')}")
                return False
            lock = self._daemon.acquire_lock(say)
            try:
                self._daemon.remove_leftovers()
                if fresh and self.state.exists():
                    say(f"its old state was moved to {_move_aside(self.state)}")
                self._daemon.spawn(lock, options, say, is_new=not self.state.exists())
            except OSError as error:
                raise folder_error(self.folder, error) from None
            finally:
                os.close(lock)
            return True

    # --- down

    def stop(self, grace: float, say: Print) -> bool:
        """Send SIGTERM and wait `grace` seconds for the pods to end, then kill pods and daemon; False when no daemon
        was alive. Raises BackgroundError."""
        if not self.folder.is_dir():
            return False
        with exclusive(self.folder):
            daemon, was_alive = self._daemon, self.daemon_alive
            if was_alive and not daemon.signal_and_wait(signal.SIGTERM, grace):
                say(f"it has not ended within {grace:g} seconds; killing its pods")
                if not any(daemon.signal_and_wait(number, KILL_TIMEOUT) for number in (signal.SIGTERM, signal.SIGKILL)):
                    raise BackgroundError(f"process {daemon.pid} does not end; see {self.log_path}")
            daemon.remove_leftovers()
            return was_alive

    def delete(self, say: Print) -> bool:
        """Remove the folder of a stopped cluster, with all its state; False when it does not exist. Raises
        BackgroundError."""
        if not self.folder.is_dir():
            return False
        with exclusive(self.folder):
            lock = self._daemon.acquire_lock(say)
            try:
                remove(self.folder)
            except OSError as error:
                raise BackgroundError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
            finally:
                os.close(lock)
        return True

    def word(self, verb: str) -> str:
        """The command line of this verb for this cluster, as a user types it."""
        return command_line(verb, self.name)


def _move_aside(state: Path) -> Path:
    target = state.with_name("aside") / time.strftime("%Y%m%dT%H%M%S")
    while target.exists():
        target = target.with_name(f"{target.name}+")
    target.parent.mkdir(mode=0o700, exist_ok=True)
    state.rename(target)
    return target


def error_text(error: Exception) -> str:
    """Why a cluster cannot run on this machine, with the fix."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        reason = f"{where}{(error.strerror or str(error)).lower()}"
        fix = "free some space" if error.errno == errno.ENOSPC else "name another place with TMPDIR or --cache"
        return f"{reason}; {fix}"
    return str(error)
