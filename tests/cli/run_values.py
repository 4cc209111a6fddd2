"""A `trainyard run` as a person starts it: a program of its own, with pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from trainyard.objects import Json

PATIENCE = 30


def container(code: str, **more: Any) -> Json:
    return {"name": "tensorflow", "image": "example.invalid/none", "command": [sys.executable, "-uc", code], **more}


def replicas(role: str, code: str, count: int = 1, restart: str = "OnFailure", **more: Any) -> Json:
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": 20, "containers": [container(code)], **more}
    return {"replicas": count, "tfReplicaType": role, "template": {"spec": spec}}


def job(*specs: Json, name: str = "story", **policies: Any) -> Json:
    spec = {"replicaSpecs": list(specs), **policies}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}


def private(folder: Path) -> dict[str, str]:
    """Temporary files, configuration and history of this test alone."""
    places = {"TMPDIR": "tmp", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
    return {variable: str(folder / name) for variable, name in places.items()}


class Started:
    """A run that has been started in `folder`, with a cache and temporary folder of its own."""

    def __init__(self, folder: Path, objects: list[Json], *arguments: str) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(exist_ok=True)
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainyard", "run", str(path), "--cache", str(folder / "cache"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **private(folder)},
            start_new_session=True,
        )
        self.lines: list[str] = []

    def read_until(self, text: str, stream: str = "stdout") -> str:
        """Read until a line holds this. Fails when the output ends before."""
        pipe = getattr(self.process, stream)
        for line in pipe:
            if stream == "stdout":
                self.lines.append(line.rstrip("\n"))
            if text in line:
                return str(line)
        raise AssertionError(f"{text!r} was not said; said was: {self.lines} {self.process.communicate()[1]}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def end(self) -> Ended:
        """Wait for the end. Whatever happens, nothing stays."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return Ended(self.process.returncode, [*self.lines, *out.splitlines()], err, out)


class Ended:
    def __init__(self, code: int, lines: list[str], err: str, out: str) -> None:
        self.code, self.lines, self.err, self.out = code, lines, err, out

    def of(self, prefix: str) -> list[str]:
        """The lines of one replica."""
        split_lines = (line.partition(" | ") for line in self.lines)
        return [text for name, bar, text in split_lines if bar and name.strip() == prefix]


def run_to_end(folder: Path, objects: list[Json], *arguments: str) -> Ended:
    return Started(folder, objects, *arguments).end()


def processes_with(mark: str) -> list[int]:
    """Processes on this machine with that text in their command line."""
    output = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                output.append(int(path.parent.name))
        except OSError:
            continue
    return output
