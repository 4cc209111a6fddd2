"""A local cluster in the background: where its state is, and how it is started, found and stopped.

The folder of the cluster NAME is $XDG_STATE_HOME/trainyard/NAME (or ~/.local/state/...), for this user alone:

    state/        all that the cluster has (state.py): it stays when the cluster is stopped or killed
    aside/TIME/   a state that somebody wanted out of the way, as it was
    merged        the kubeconfigs of the person's own that this cluster was written into (merging.py)
    turn          held by whoever starts or stops it: two `up`, or an `up` and a `down`, take turns
    lock          held by the daemon as long as it lives, and nothing else says that it does; its process id is in it
    cluster.json  what is true of the cluster; written when it is ready, gone when it stops
    kubeconfig    for kubectl and for our own words; it stays, too, and holds again when the cluster is up again
    daemon.log    what the daemon said, and .1 what the one before it said

Rules:
- The lock is taken by the starter and handed to the daemon, so there is no moment in which nobody holds it.
- A process id is believed only while the lock is held.
- A state is removed by nobody but `delete`, which is asked for by name, and says what goes.
- Nothing heavy is loaded here: `trainyard status` must be quick.
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

from trainyard.app.folder import PREFIX, remove, sweep

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
HISTORY = "history"  # beside the clusters' folders: what is kept of every job (history.py)
LOOK = 0.05  # seconds between two looks at a lock that somebody else holds
TAKE = 1.0  # seconds: others hold the lock for a moment when they look whether it is held
GONE = 60.0  # seconds in which a cluster that is on its way down must be gone
KILLED = 10.0

Say = Callable[[str], object]


class BackgroundError(Exception):
    """The cluster cannot be started or stopped. The text names the fix; `code` is the exit code of the command."""

    def __init__(self, text: str, code: int = 3) -> None:
        super().__init__(text)
        self.code = code


def state_folder() -> Path:
    """Where the state of all background clusters of this user is."""
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "trainyard"
    try:
        return Path.home() / ".local" / "state" / "trainyard"
    except RuntimeError:
        raise BackgroundError("there is no home folder; set XDG_STATE_HOME to a folder of yours") from None


def names() -> list[str]:
    """The clusters that have a state folder, up or not."""
    with contextlib.suppress(OSError, BackgroundError):
        folders = [path for path in state_folder().iterdir() if path.name != HISTORY and path.is_dir()]
        return sorted(path.name for path in folders if NAME.fullmatch(path.name))
    return []


def known(but: str = "") -> str:
    """The other clusters that there are, as the end of a sentence about one that is not there."""
    others = [name for name in names() if name != but]
    return f"; there {'are' if len(others) > 1 else 'is'}: {', '.join(others)}" if others else ""


def behind(kubeconfig: str) -> Background | None:
    """The background cluster whose kubeconfig that is; None for any other file."""
    clusters = (Background(name) for name in names())
    return next((cluster for cluster in clusters if str(cluster.kubeconfig) == kubeconfig), None)


class Background:
    """The background cluster of that name."""

    def __init__(self, name: str = "default") -> None:
        if not NAME.fullmatch(name):
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
        """What the cluster is called in a kubeconfig."""
        return f"trainyard-{self.name}"

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def alive(self) -> bool:
        """True while a daemon lives: starting, up, or on its way down."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unusable(self.folder, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def killed(self) -> bool:
        """Its daemon has gone without ending the cluster: `kill -9`, or the machine lost its power."""
        return not self.alive and (self.folder / "cluster.json").exists()

    def why_not_up(self) -> str:
        """What it is while it is not up, and the command that brings it back."""
        up = f"`{self.word('up')}`"
        if self.killed:
            return f"the daemon of the cluster {self.name} was killed; its jobs and files are kept: go on with {up}"
        if self.state.exists():
            return f"the cluster {self.name} is not up: go on with {up}"
        return f"no cluster: start one with {up}"

    def facts(self) -> dict[str, Any] | None:
        """What is true of the cluster, None while it is not up."""
        if not self.alive:
            return None
        try:
            found = json.loads((self.folder / "cluster.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def merged(self) -> list[Path]:
        """The kubeconfigs of the person's own that it was written into."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return [Path(line) for line in (self.folder / "merged").read_text().splitlines() if line]
        return []

    def remember(self, kubeconfig: Path) -> None:
        """It was written into that one."""
        known = self.merged()
        if kubeconfig not in known:
            lines = "".join(f"{path}\n" for path in [*known, kubeconfig])
            early = self.folder / "merged.new"
            early.write_text(lines)
            early.chmod(0o600)
            early.replace(self.folder / "merged")

    # --- up

    def start(self, options: dict[str, Any], say: Say, fresh: bool = False) -> bool:
        """Bring it up, and return when it is ready; False when it was up already. Raises BackgroundError. `fresh`: with
        nothing of what it had, which is put aside."""
        with self._turn():
            if self.facts() is not None:
                if fresh:
                    raise BackgroundError(f"the cluster {self.name} is up; stop it first: {self.word('down')}")
                return False
            lock = self._lock(say)
            try:
                self._clean()
                if fresh and self.state.exists():
                    say(f"what it had is put aside, as it was: {self._put_aside()}")
                self._spawn(lock, options, say)
            except OSError as error:
                raise _unusable(self.folder, error) from None
            finally:
                os.close(lock)
            return True

    def _lock(self, say: Say) -> int:
        """The lock, held by us. A daemon that is neither up nor gone is waited for."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if _held(lock, TAKE):
            return lock
        say("a cluster of that name is on its way down; waiting for it")
        if _held(lock, GONE):
            return lock
        os.close(lock)
        raise BackgroundError(f"the cluster {self.name} does not end; stop it with: {self.word('down')}")

    def _spawn(self, lock: int, options: dict[str, Any], say: Say) -> None:
        """Start the daemon and hear it out until it is ready."""
        ears, mouth = os.pipe()
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(f"{self.log}.1")
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainyard.app.daemon", str(self.folder), f"{lock}", f"{mouth}"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock, mouth),
                env=_environment(),
                cwd="/",
                umask=0o077,
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(mouth)
        try:
            with os.fdopen(ears, "rb") as said:
                if daemon.stdin is not None:
                    with contextlib.suppress(BrokenPipeError), daemon.stdin:
                        daemon.stdin.write(json.dumps(options).encode())
                _hear(said, say, self.log)
        except BaseException:
            _end(daemon)
            self._clean()
            raise
        daemon.returncode = 0  # it lives on: nobody here is to wait for it

    # --- down

    def stop(self, grace: float, say: Say) -> bool:
        """Stop it, in good order for `grace` seconds, then by force; False when it was not up."""
        if not self.folder.is_dir():
            return False
        with self._turn():
            was = self.alive
            if was and not self._ended(signal.SIGTERM, grace):
                say(f"it has not ended within {grace:g} seconds: its pods are killed")
                if not self._ended(signal.SIGTERM, KILLED) and not self._ended(signal.SIGKILL, KILLED):
                    raise BackgroundError(f"process {self._pid()} does not end; look into {self.log}")
            self._clean()
            return was

    def delete(self, say: Say) -> bool:
        """After `stop`: remove all that it had; False when there is nothing."""
        if not self.folder.is_dir():
            return False
        with self._turn():
            lock = self._lock(say)
            try:
                remove(self.folder)
            except OSError as error:
                raise BackgroundError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
            finally:
                os.close(lock)
        return True

    def _put_aside(self) -> Path:
        place = self.folder / "aside" / time.strftime("%Y%m%dT%H%M%S")
        while place.exists():
            place = place.with_name(f"{place.name}+")
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self.state.rename(place)
        return place

    def _ended(self, number: int, seconds: float) -> bool:
        """Send the daemon a signal; True when it has ended in that time."""
        self._send(number)
        until = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK)
        return True

    def _pid(self) -> int:
        try:
            return int((self.folder / "lock").read_text() or "0")
        except (OSError, ValueError):
            return 0

    def _send(self, number: int) -> None:
        """The handle is opened first and the lock looked at then: so it cannot be a stranger with the same number."""
        pid = self._pid()
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                os.kill(pid, number)
                return
            process = os.pidfd_open(pid)
            try:
                if self.alive and self._pid() == pid:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)

    def _clean(self) -> None:
        """Take away what a cluster that is not there any more has left; the hub of a killed one may still be at it."""
        (self.folder / "cluster.json").unlink(missing_ok=True)
        until = time.monotonic() + KILLED
        sweep(self.folder)
        while list(self.folder.glob(f"{PREFIX}*")) and time.monotonic() < until:
            time.sleep(LOOK)
            sweep(self.folder)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        turn = self._taken()
        while not _is_at(turn, self.folder / "turn"):  # whoever had it has removed the folder
            os.close(turn)
            turn = self._taken()
        try:
            yield
        finally:
            os.close(turn)

    def _taken(self) -> int:
        """The turn, held by us."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.is_symlink() or self.folder.stat().st_uid != os.getuid():
                raise BackgroundError(
                    f"{self.folder} belongs to somebody else; set XDG_STATE_HOME to a folder of yours"
                )
            self.folder.chmod(0o700)
            turn = os.open(self.folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(self.folder, error) from None
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
        except BaseException:
            os.close(turn)
            raise
        return turn

    def word(self, verb: str) -> str:
        """The command about this cluster, as a person types it."""
        return word(verb, self.name)


def word(verb: str, name: str) -> str:
    """The command about the cluster of that name."""
    return f"trainyard {verb}" if name == "default" else f"trainyard {verb} --name {name}"


def _is_at(fd: int, path: Path) -> bool:
    """Whether that open file still is the one with that name."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except OSError:
        return False


def _held(lock: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK)


def _hear(said: Any, say: Say, log: Path) -> None:
    """Pass on what a starting daemon says, until it is ready. Raises BackgroundError when it does not get there."""
    for line in said:
        word = json.loads(line)
        if "ready" in word:
            return
        if "failed" in word:
            raise BackgroundError(word["failed"], word["code"])
        say(word["note"])
    last = (log.read_text(errors="replace").splitlines() or ["nothing"])[-1]
    raise BackgroundError(f"the cluster ended while it started; the last it said was: {last}\nSee {log}")


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """A daemon that did not get ready does not stay: its hub takes its processes along."""
    for stop in (daemon.terminate, daemon.kill):
        stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(KILLED)
            return


def _environment() -> dict[str, str]:
    """Ours, with a module path that holds in another folder, too."""
    found = dict(os.environ)
    if path := found.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep) if part)
    return found


def _unusable(folder: Path, error: OSError) -> BackgroundError:
    what = (error.strerror or str(error)).lower()
    return BackgroundError(f"{error.filename or folder}: {what}; set XDG_STATE_HOME to a folder that you can write")


def in_words(error: Exception) -> str:
    """Why something cannot run here, with the fix."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        what = f"{where}{(error.strerror or str(error)).lower()}"
        fix = "free some space" if error.errno == errno.ENOSPC else "name another place with TMPDIR or --cache"
        return f"{what}; {fix}"
    return str(error)
