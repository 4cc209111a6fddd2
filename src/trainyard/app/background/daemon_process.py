"""The daemon of a background cluster as other processes see it: start, detection by its lock, and signals.

Rules:
- The starting process takes the lock and passes the open descriptor to the daemon: the lock is never free in between.
- The process id is used only while the lock is held.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.app.background import daemon_interpreter, hand_over
from trainyard.app.background.certificate_process import CertificateProcess
from trainyard.app.background.cluster_folders import STALL, BackgroundError, command_line, folder_error
from trainyard.app.background.daemon_interpreter import DaemonInterpreter
from trainyard.app.background.file_locks import POLL_SECONDS, try_lock
from trainyard.app.background.folder import PREFIX, is_locked, remove_abandoned

LOCK_TIMEOUT = 1.0  # seconds: `alive` in another process holds the lock for a moment while it tests it
STOP_TIMEOUT = 60.0  # seconds within which a daemon that is shutting down must have ended
KILL_TIMEOUT = 10.0  # seconds within which a process must have ended after a signal that kills its pods

Print = Callable[[str], object]


class DaemonProcess:
    """The daemon of the cluster with this folder, alive or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_path = folder / "daemon.log"

    @property
    def alive(self) -> bool:
        """True while the process lives: starting, ready or shutting down. Raises BackgroundError."""
        try:
            return is_locked(self.folder / "lock")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise folder_error(self.folder, error) from None

    @property
    def pid(self) -> int:
        """The pid in the lock file, 0 when there is none."""
        try:
            return int((self.folder / "lock").read_text() or "0")
        except (OSError, ValueError):
            return 0

    def acquire_lock(self, say: Print) -> int:
        """Take the lock, and return its file descriptor. Waits for a daemon that is shutting down. Raises
        BackgroundError, OSError."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if try_lock(lock, LOCK_TIMEOUT):
            return lock
        say("a cluster of that name is stopping; waiting for it")
        if try_lock(lock, STOP_TIMEOUT):
            return lock
        os.close(lock)
        raise BackgroundError(
            f"the cluster {self.folder.name} does not stop; stop it with: {command_line('down', self.folder.name)}"
        )

    def spawn(self, lock: int, options: dict[str, Any], say: Print, is_new: bool) -> None:
        """Start the process with the lock and print its progress until it is ready. The certificates of a new cluster
        are made while the process imports its modules. Raises BackgroundError, OSError."""
        with CertificateProcess() if is_new else contextlib.nullcontext() as certificates:
            self._spawn(lock, options, say, certificates.output.fileno() if certificates else None)

    def _spawn(self, lock: int, options: dict[str, Any], say: Print, certificates: int | None) -> None:
        read_end, write_end = os.pipe()
        with contextlib.suppress(FileNotFoundError):
            self.log_path.replace(f"{self.log_path}.1")
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            interpreter = daemon_interpreter.take()
            what = hand_over.HandOver(self.folder, options, lock, write_end, log, certificates)
            with contextlib.suppress(ConnectionError):  # it has ended: the pipe tells so
                hand_over.send(interpreter.connection, what)
        finally:
            os.close(log)
            os.close(write_end)
        try:
            with os.fdopen(read_end, "rb") as messages:
                _wait_until_ready(messages, say, self.log_path, interpreter)
        except BaseException:
            _terminate(interpreter.pid)
            self.remove_leftovers()
            raise
        finally:
            interpreter.close()

    def signal_and_wait(self, signum: int, seconds: float) -> bool:
        """Send a signal; True when it has ended within `seconds`."""
        self._send_signal(signum)
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _send_signal(self, signum: int) -> None:
        """Open the pidfd first and check the lock afterwards: so the signal cannot reach another process that was given
        the same process id."""
        pid = self.pid
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                os.kill(pid, signum)
                return
            pidfd = os.pidfd_open(pid)
            try:
                if self.alive and self.pid == pid:
                    signal.pidfd_send_signal(pidfd, signum)
            finally:
                os.close(pidfd)

    def remove_leftovers(self) -> None:
        """Remove what a dead daemon left behind. The supervisor of a killed daemon may still be running, so this
        retries for KILL_TIMEOUT seconds."""
        for name in ("cluster.json", STALL):
            (self.folder / name).unlink(missing_ok=True)
        deadline = time.monotonic() + KILL_TIMEOUT
        remove_abandoned(self.folder)
        while list(self.folder.glob(f"{PREFIX}*")) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            remove_abandoned(self.folder)


def _wait_until_ready(messages: Any, say: Print, log: Path, interpreter: DaemonInterpreter) -> None:
    """Print the notes of a starting daemon until it is ready. Raises BackgroundError when it fails or ends before
    that."""
    for line in messages:
        message = json.loads(line)
        if "ready" in message:
            return
        if "failed" in message:
            raise BackgroundError(message["failed"], message["code"])
        say(message["note"])
    last_line = (log.read_text(errors="replace").splitlines() or [interpreter.last_line() or "nothing"])[-1]
    raise BackgroundError(f"the cluster ended during its start; its last message: {last_line}\nSee {log}")


def _terminate(pid: int) -> None:
    """End a daemon that did not get ready, a child of this process. Its supervisor ends the processes of the pods."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it has ended, and SIGCHLD is ignored
        for signum in (signal.SIGTERM, signal.SIGKILL):
            os.kill(pid, signum)
            deadline = time.monotonic() + KILL_TIMEOUT
            while time.monotonic() < deadline:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    return
                time.sleep(POLL_SECONDS)
