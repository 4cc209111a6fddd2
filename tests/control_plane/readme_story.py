"""One README's commands, typed one after the other against a real control plane, as a person would.

Rules:
- A shell keeps its variables and its folder from one command to the next. It stands in a copy of this repository.
- A command that only reads is typed again until it prints what the row shows, or time is up. Any other is typed once.
- A command that does not end by itself (`kubectl proxy`, `logs -f`) is left running after it has printed that output.
- Pods run on our node as processes, the installed operator among them. Replicas end when a row says so.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.control_plane.readme_table import Row, matches
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from tests.support.waiting import SLOW_PAUSE, until
from tools.generate_manifests import ROOT
from trainyard.objects import Json, name_of, namespace_of

FOLDERS = ("charts", "config", "deploy", "examples", "testdata")
READS = re.compile(r"kubectl (get|describe|logs) |http://")
LONG_RUNNING = re.compile(r"kubectl (proxy|logs -f)\b")
VISIT = """
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=60) as page:
        print(page.status, page.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
# Two lines of client-go's own log, in helm: helm ends its wait while the last event of its watch is on the way.
LIBRARY = re.compile(
    r'^(E\d{4} .*request\.go:\d+] "Unexpected error when reading response body"'
    r'|I\d{4} .*reflector\.go:\d+] "Warning: watch ended with error".*context canceled).*\n',
    re.MULTILINE,
)
KILLED = 128 + signal.SIGKILL  # whoever ends a container from inside may be killed with it before he has ended himself
END = 'echo {} > "${{TMPDIR:-/tmp}}/end"'  # what readme_images/replica.py waits for


class Shell:
    """What a person's terminal keeps."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.place, self.env, self._notes = folder / "repository", env, folder
        self.place.mkdir()
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.place / name)

    def argv(self, command: str, then: str = "") -> list[str]:
        """The command in the shell's folder, and what the same shell runs after it."""
        return ["sh", "-c", f"cd '{self.place}'\nset -a\n{_typed(command)}\n{then}"]

    def run(self, command: str) -> tuple[int, str]:
        """Its exit code and its output, without the lines that client-go logs when a watch ends (`LIBRARY`).

        Only a command in the foreground writes its variables and its folder down: a `logs -f` that ended in the
        background while they were read once left the next command without HOME.
        """
        then = f"code=$?; env -0 > {self._notes}/env; pwd > {self._notes}/pwd; exit $code"
        argv, out, err = self.argv(command, then), subprocess.PIPE, subprocess.STDOUT
        completed = subprocess.run(argv, env=self.env, stdout=out, stderr=err, text=True, timeout=180)
        if completed.returncode == 0:
            pairs = (self._notes / "env").read_text().split("\0")
            self.env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            self.place = Path((self._notes / "pwd").read_text().strip())
        return completed.returncode, LIBRARY.sub("", completed.stdout)


def _typed(command: str) -> str:
    """A page's address is opened, as in a browser."""
    return f"'{sys.executable}' -c '{VISIT}' {command}" if command.startswith("http://") else command


class Story:
    """A shell beside a control plane, and whatever runs until the end."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        home = folder / "home"
        (home / ".kube").mkdir(parents=True)
        shutil.copy(plane.kubeconfig, home / ".kube" / "config")
        bins = folder / "bin"
        bins.mkdir()
        (bins / "trainyard").write_text(f'#!/bin/sh\nexec {sys.executable} -m trainyard "$@"\n')
        (bins / "trainyard").chmod(0o755)
        path = f"{bins}:{plane.programs['kubectl'].parent}:{os.environ.get('PATH', os.defpath)}"
        (port,) = free_ports(1)
        self.shell = Shell(folder, {"PATH": path, "HOME": str(home), "PORT": str(port)})
        self.running: list[ControlPlaneProcess] = []

    def close(self) -> None:
        for process in self.running:
            process.end()

    # --- rows

    def play(self, row: Row) -> None:
        """Run the row's preparations and its command, and check the output."""
        for step in row.first:
            self.prepare(step)
        output = self.output_of(row)
        assert matches(row.prints, output), f"{row}\nprints\n{output}\nand not\n" + "\n".join(row.prints)

    def output_of(self, row: Row) -> str:
        if LONG_RUNNING.match(row.command):
            return self.follow(row)
        if READS.match(row.command):
            return until(
                lambda: self.shell.run(row.command),
                f"the output of {row}",
                accept=lambda answer: answer[0] == 0 and matches(row.prints, answer[1]),
                pause=SLOW_PAUSE,
            )[1]
        code, output = self.shell.run(row.command)
        assert code == 0, f"{row}\nended with {code}:\n{output}"
        return output

    def follow(self, row: Row) -> str:
        """Start a long-running command; its output when it has printed what the row shows, or has ended."""
        process = self.start(row.command)
        until(
            lambda: not process.alive or matches(row.prints, process.log.read_text()),
            f"the output of {row}",
            context=process.log.read_text,
        )
        return process.log.read_text()

    def start(self, command: str) -> ControlPlaneProcess:
        """Start a process that runs while the next rows are typed."""
        log = self.folder / f"{len(self.running)}.log"
        process = ControlPlaneProcess(command, self.shell.argv(command), log, self.shell.env)
        self.running.append(process)
        process.start()
        return process

    # --- preparations of a row

    def prepare(self, step: str) -> None:
        """Run a command in backticks, or the preparation that the sentence names."""
        if step.startswith("`") and step.endswith("`"):
            code, output = self.shell.run(step.strip("`"))
            assert code == 0, f"{step} ended with {code}:\n{output}"
            return
        for pattern, act in PREPARATIONS.items():
            if match := re.fullmatch(pattern, step):
                act(self, *match.groups())
                return
        raise AssertionError(f"{step!r} is not a preparation; known: {', '.join(PREPARATIONS)}")

    def start_operator(self) -> None:
        """Start the operator with the shell's variables, as a user would."""
        self.start("exec trainyard operator")

    def end_pods(self, number: str, pattern: str, code: str) -> None:
        """Wait until so many pods match and all of them run; then end their programs with that exit code."""
        until(
            lambda: list(map(_runs, self.pods(pattern))) == [True] * int(number),
            f"{number} pods {pattern} run",
            pause=SLOW_PAUSE,
        )
        for pod in self.pods(pattern):
            name = pod["spec"]["containers"][0]["name"]
            where = ("-n", namespace_of(pod), name_of(pod), "-c", name)
            completed = self.plane.run("kubectl", "exec", *where, "--", "sh", "-c", END.format(code))
            assert completed.returncode in (0, KILLED), completed.stdout + completed.stderr

    def open_page(self, url: str) -> None:
        """Open a page in a pod of a job, which resolves the cluster's DNS names."""
        code, name = self.shell.run(f"echo {url}")
        pod = next(pod for pod in self.pods("master-*") if _runs(pod))
        where = ("-n", namespace_of(pod), name_of(pod))
        output = self.plane.kubectl("exec", *where, "--", "python", "-c", VISIT, name.strip())
        assert code == 0 and output.startswith("200 "), output

    def pods(self, pattern: str) -> list[Json]:
        items: list[Json] = self.plane.ask("GET", "/api/v1/pods")[1]["items"]
        return [pod for pod in items if fnmatch.fnmatch(name_of(pod), pattern)]


def _runs(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


PREPARATIONS: dict[str, Callable[..., None]] = {
    r"(\d+) pods? (\S+) ends? with (\d+)": Story.end_pods,
    r"a pod sees (http://\S+)": Story.open_page,
    r"the operator is started by hand": Story.start_operator,
}
