"""`trainyard up` and the rest as a person starts them: programs of their own, with a state folder of this test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.loop_stalls import environment_of_watched_daemons
from tests.support.waiting import until

PATIENCE = 60.0


class Home:
    """A person's home: state, configuration, temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(exist_ok=True)
        self.env = {
            **environment_of_watched_daemons(os.environ),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(folder / "tmp"),
        }
        self.env.pop("KUBECONFIG", None)

    @property
    def state(self) -> Path:
        return self.folder / "state" / "trainyard" / "default"

    def start(self, *line: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard", *line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"env": self.env, **more},
        )

    def say(self, *line: str) -> tuple[int, str, str]:
        """One command to its end. Its pipes are at their end too: a daemon must not hold them open."""
        started = self.start(*line)
        out, err = started.communicate(timeout=PATIENCE)
        return started.returncode, out, err

    def up(self, *words: str) -> tuple[int, str, str]:
        return self.say("up", "--network", "shared", *words)

    def until(self, text: str, *line: str) -> None:
        """Repeat the command until its output has this text."""
        until(lambda: self.say(*line), f"{text!r} in `{' '.join(line)}`", accept=lambda answer: text in answer[1])

    def locked_by(self) -> int:
        """The daemon that holds the lock, as soon as there is one."""
        lock = self.state / "lock"
        return until(lambda: int(lock.read_text()), "a daemon holds the lock", retry_on=(OSError, ValueError))

    @property
    def pid(self) -> int:
        return int(json.loads((self.state / "cluster.json").read_text())["pid"])

    def left(self) -> set[str]:
        """What lies in the state folder but for what always may."""
        known = {"lock", "turn", "daemon.log", "daemon.log.1", "state", "kubeconfig", "options.json"}
        return {path.name for path in self.state.iterdir()} - known if self.state.exists() else set()


@contextmanager
def at_home(folder: Path) -> Iterator[Home]:
    """Whatever happens, no daemon of this test stays."""
    home = Home(folder)
    try:
        yield home
    finally:
        home.say("down", "--grace", "5")


def until_process_ended(pid: int) -> None:
    """Wait until that process is gone (or a zombie that nobody has waited for)."""

    def state() -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "gone"

    until(state, f"the process {pid} has ended", accept=lambda name: name in ("Z", "gone"))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until_process_ended(pid)
