"""Background clusters (`trainyard up`): where their state is stored, and how they are started, detected and stopped.

The folder of the cluster NAME is $XDG_STATE_HOME/trainyard/NAME (or ~/.local/state/...), mode 0700:

    state/        all state of the cluster (state.py); kept when the cluster is stopped or killed aside/TIME/   a state
    that `up --fresh` moved away, unchanged merged        the paths of the user's kubeconfigs into which the cluster was
    written (kubeconfig_merge.py), one a line turn          lock file of the process that starts or stops the cluster:
    concurrent `up` and `down` run in turn lock          lock file that the daemon holds as long as it lives: the only
    proof that it lives; has its process id cluster.json  facts about the running cluster; written when it is ready,
    removed when it stops kubeconfig    for kubectl and for the commands of Trainyard; kept too, and valid again when
    the cluster is up again daemon.log    output of the daemon; daemon.log.1 is the output of the daemon before it

Rules:
- The starting process takes the lock and passes the open descriptor to the daemon: the lock is never free in between.
- The process id is used only while the lock is held.
- Only `Background.delete` removes a state: the user asks for it by an option, and is shown what is removed.
- This module imports nothing heavy: `trainyard status` must be quick.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainyard.app.folder import PREFIX, remove, remove_abandoned

CLUSTER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
HISTORY = "history"  # beside the clusters' folders: the records of all jobs (history.py)
POLL_SECONDS = 0.05  # seconds between two attempts to take a lock that another process holds
LOCK_TIMEOUT = 1.0  # seconds: `alive` in another process holds the lock for a moment while it tests it
STOP_TIMEOUT = 60.0  # seconds within which a daemon that is shutting down must have ended
KILL_TIMEOUT = 10.0  # seconds within which a process must have ended after a signal that kills its pods

Print = Callable[[str], object]


class BackgroundError(Exception):
    """The cluster cannot be started or stopped. The message names the fix; `code` is the exit code of the command."""

    def __init__(self, text: str, code: int = 3) -> None:
        super().__init__(text)
        self.code = code


def state_folder() -> Path:
    """The folder that holds the folders of all background clusters of this user. Raises BackgroundError when there is
    no home folder."""
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "trainyard"
    try:
        return Path.home() / ".local" / "state" / "trainyard"
    except RuntimeError:
        raise BackgroundError("there is no home folder; set XDG_STATE_HOME to a folder of yours") from None


def cluster_names() -> list[str]:
    """The names of the clusters that have a folder, running or not, sorted."""
    with contextlib.suppress(OSError, BackgroundError):
        folders = [path for path in state_folder().iterdir() if path.name != HISTORY and path.is_dir()]
        return sorted(path.name for path in folders if CLUSTER_NAME.fullmatch(path.name))
    return []


def clause_of_clusters(but: str = "") -> str:
    """A clause for the end of an error message that lists the existing clusters except `but`; "" when there are
    none."""
    existing = [name for name in cluster_names() if name != but]
    return f"; there {'are' if len(existing) > 1 else 'is'}: {', '.join(existing)}" if existing else ""


def background_of(kubeconfig: str) -> Background | None:
    """The background cluster whose kubeconfig has this path; None for any other file."""
    clusters = (Background(name) for name in cluster_names())
    return next((cluster for cluster in clusters if str(cluster.kubeconfig) == kubeconfig), None)


class Background:
    """The background cluster with the given name."""

    def __init__(self, name: str = "default") -> None:
        if not CLUSTER_NAME.fullmatch(name):
            raise BackgroundError(f"--name: {name!r} is not a name; write up to 40 lower-case letters, digits, '-'", 2)
        if name == HISTORY:
            raise BackgroundError(f"--name: {name} is where the history of all jobs is kept; write another name", 2)
        self.name = name
        self.folder = state_folder() / name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def context(self) -> str:
        """The name of the cluster's context, cluster and user in a kubeconfig."""
        return f"trainyard-{self.name}"

    @property
    def log_path(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def daemon_alive(self) -> bool:
        """True while a daemon process lives: starting, ready or shutting down. Raises BackgroundError."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _state_folder_error(self.folder, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

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

    def merged_kubeconfigs(self) -> list[Path]:
        """The user's kubeconfigs into which the cluster was written."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return [Path(line) for line in (self.folder / "merged").read_text().splitlines() if line]
        return []

    def add_merged_kubeconfig(self, kubeconfig: Path) -> None:
        """Record that the cluster was written into this kubeconfig."""
        merged = self.merged_kubeconfigs()
        if kubeconfig not in merged:
            lines = "".join(f"{path}\n" for path in [*merged, kubeconfig])
            new_file = self.folder / "merged.new"
            new_file.write_text(lines)
            new_file.chmod(0o600)
            new_file.replace(self.folder / "merged")

    # --- up

    def start(self, options: dict[str, Any], say: Print, fresh: bool = False) -> bool:
        """Start the cluster, and return when it is ready; False when it already was. With `fresh` the cluster starts
        empty, and its previous state is moved to aside/. Raises BackgroundError."""
        with self._exclusive():
            if self.facts() is not None:
                if fresh:
                    raise BackgroundError(f"the cluster {self.name} is up; stop it first: {self.word('down')}")
                return False
            lock = self._acquire_daemon_lock(say)
            try:
                self._remove_leftovers()
                if fresh and self.state.exists():
                    say(f"what it had is put aside, as it was: {self._move_state_aside()}")
                self._spawn(lock, options, say)
            except OSError as error:
                raise _state_folder_error(self.folder, error) from None
            finally:
                os.close(lock)
            return True

    def _acquire_daemon_lock(self, say: Print) -> int:
        """Take the daemon's lock, and return its file descriptor. Waits for a daemon that is shutting down. Raises
        BackgroundError, OSError."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if _try_lock(lock, LOCK_TIMEOUT):
            return lock
        say("a cluster of that name is on its way down; waiting for it")
        if _try_lock(lock, STOP_TIMEOUT):
            return lock
        os.close(lock)
        raise BackgroundError(f"the cluster {self.name} does not end; stop it with: {self.word('down')}")

    def _spawn(self, lock: int, options: dict[str, Any], say: Print) -> None:
        """Start the daemon, and print its progress until it is ready. Raises BackgroundError, OSError."""
        read_end, write_end = os.pipe()
        with contextlib.suppress(FileNotFoundError):
            self.log_path.replace(f"{self.log_path}.1")
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainyard.app.daemon", str(self.folder), f"{lock}", f"{write_end}"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock, write_end),
                env=_environment(),
                cwd="/",
                umask=0o077,
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(write_end)
        try:
            with os.fdopen(read_end, "rb") as messages:
                if daemon.stdin is not None:
                    with contextlib.suppress(BrokenPipeError), daemon.stdin:
                        daemon.stdin.write(json.dumps(options).encode())
                _wait_until_ready(messages, say, self.log_path)
        except BaseException:
            _terminate(daemon)
            self._remove_leftovers()
            raise
        daemon.returncode = 0  # the daemon outlives this process: Popen must not warn that it was not waited for

    # --- down

    def stop(self, grace: float, say: Print) -> bool:
        """Send SIGTERM and wait `grace` seconds for the pods to end, then kill pods and daemon; False when no daemon
        was alive. Raises BackgroundError."""
        if not self.folder.is_dir():
            return False
        with self._exclusive():
            was_alive = self.daemon_alive
            if was_alive and not self._signal_and_wait(signal.SIGTERM, grace):
                say(f"it has not ended within {grace:g} seconds: its pods are killed")
                if not self._signal_and_wait(signal.SIGTERM, KILL_TIMEOUT) and not self._signal_and_wait(
                    signal.SIGKILL, KILL_TIMEOUT
                ):
                    raise BackgroundError(f"process {self._pid()} does not end; look into {self.log_path}")
            self._remove_leftovers()
            return was_alive

    def delete(self, say: Print) -> bool:
        """After `stop`: remove the folder of the cluster with all state; False when it does not exist. Raises
        BackgroundError."""
        if not self.folder.is_dir():
            return False
        with self._exclusive():
            lock = self._acquire_daemon_lock(say)
            try:
                remove(self.folder)
            except OSError as error:
                raise BackgroundError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
            finally:
                os.close(lock)
        return True

    def _move_state_aside(self) -> Path:
        target = self.folder / "aside" / time.strftime("%Y%m%dT%H%M%S")
        while target.exists():
            target = target.with_name(f"{target.name}+")
        target.parent.mkdir(mode=0o700, exist_ok=True)
        self.state.rename(target)
        return target

    def _signal_and_wait(self, signum: int, seconds: float) -> bool:
        """Send the daemon a signal; True when it has ended within `seconds`."""
        self._send_signal(signum)
        deadline = time.monotonic() + seconds
        while self.daemon_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _pid(self) -> int:
        try:
            return int((self.folder / "lock").read_text() or "0")
        except (OSError, ValueError):
            return 0

    def _send_signal(self, signum: int) -> None:
        """Open the pidfd first and check the lock afterwards: so the signal cannot reach another process that was given
        the same process id."""
        pid = self._pid()
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                os.kill(pid, signum)
                return
            pidfd = os.pidfd_open(pid)
            try:
                if self.daemon_alive and self._pid() == pid:
                    signal.pidfd_send_signal(pidfd, signum)
            finally:
                os.close(pidfd)

    def _remove_leftovers(self) -> None:
        """Remove what a dead daemon left behind. The helper process of a killed daemon may still be running, so this
        retries for KILLED seconds."""
        (self.folder / "cluster.json").unlink(missing_ok=True)
        deadline = time.monotonic() + KILL_TIMEOUT
        remove_abandoned(self.folder)
        while list(self.folder.glob(f"{PREFIX}*")) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            remove_abandoned(self.folder)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the file `turn`: only one process starts or stops the cluster at a time. Waits without a limit."""
        lock = self._acquire_operation_lock()
        while not _is_file_at(lock, self.folder / "turn"):  # the previous holder has removed the folder
            os.close(lock)
            lock = self._acquire_operation_lock()
        try:
            yield
        finally:
            os.close(lock)

    def _acquire_operation_lock(self) -> int:
        """Make the folder, lock the file `turn` and return its file descriptor. Raises BackgroundError."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.is_symlink() or self.folder.stat().st_uid != os.getuid():
                raise BackgroundError(
                    f"{self.folder} belongs to somebody else; set XDG_STATE_HOME to a folder of yours"
                )
            self.folder.chmod(0o700)
            lock = os.open(self.folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _state_folder_error(self.folder, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def word(self, verb: str) -> str:
        """The command line of this verb for this cluster, as a user types it."""
        return command_line(verb, self.name)


def command_line(verb: str, name: str) -> str:
    """The command line of this verb for the cluster of that name."""
    return f"trainyard {verb}" if name == "default" else f"trainyard {verb} --name {name}"


def _is_file_at(fd: int, path: Path) -> bool:
    """Whether `path` still names this open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


def _try_lock(lock: int, seconds: float) -> bool:
    """Try for `seconds` to lock the open file exclusively; whether that succeeded."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)


def _wait_until_ready(messages: Any, say: Print, log: Path) -> None:
    """Print the notes of a starting daemon until it is ready. Raises BackgroundError when it fails or ends before
    that."""
    for line in messages:
        message = json.loads(line)
        if "ready" in message:
            return
        if "failed" in message:
            raise BackgroundError(message["failed"], message["code"])
        say(message["note"])
    last_line = (log.read_text(errors="replace").splitlines() or ["nothing"])[-1]
    raise BackgroundError(f"the cluster ended while it started; the last it said was: {last_line}\nSee {log}")


def _terminate(daemon: subprocess.Popen[bytes]) -> None:
    """End a daemon that did not get ready. Its helper process ends the processes of the pods."""
    for stop in (daemon.terminate, daemon.kill):
        stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(KILL_TIMEOUT)
            return


def _environment() -> dict[str, str]:
    """The environment of this process, with absolute paths in PYTHONPATH: the daemon runs in another folder."""
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep) if part)
    return environment


def _state_folder_error(folder: Path, error: OSError) -> BackgroundError:
    reason = (error.strerror or str(error)).lower()
    return BackgroundError(f"{error.filename or folder}: {reason}; set XDG_STATE_HOME to a folder that you can write")


def error_text(error: Exception) -> str:
    """Why a cluster cannot run on this machine, with the fix."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        reason = f"{where}{(error.strerror or str(error)).lower()}"
        fix = "free some space" if error.errno == errno.ENOSPC else "name another place with TMPDIR or --cache"
        return f"{reason}; {fix}"
    return str(error)
