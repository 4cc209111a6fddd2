"""One README's commands, typed one after the other against a real control plane, as a person would.

Rules:
- A shell keeps its variables and its folder from one command to the next. It stands in a copy of this repository.
- A command that only reads is typed again until it prints what the row shows, or time is up. Any other is typed once.
- What stays (`kubectl proxy`, `logs -f`) is left alone as soon as it has printed that.
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
import time
from collections.abc import Callable
from pathlib import Path

from tests.control_plane.readme_table import Row, matches
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from tools.generate_manifests import ROOT
from trainyard.objects import Json, name_of, namespace_of

PATIENCE = 60.0
LOOK = 0.1
FOLDERS = ("charts", "config", "deploy", "examples", "testdata")
READS = re.compile(r"kubectl (get|describe|logs) |http://")
STAYS = re.compile(r"kubectl (proxy|logs -f)\b")
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
        """Its code, and all that it prints, but what a library within it says of a watch that it has given up.

        Only a command in the foreground writes its variables and its folder down: a `logs -f` that ended in the
        background while they were read once left the next command without HOME.
        """
        then = f"code=$?; env -0 > {self._notes}/env; pwd > {self._notes}/pwd; exit $code"
        words, both = self.argv(command, then), subprocess.STDOUT
        ran = subprocess.run(words, env=self.env, stdout=subprocess.PIPE, stderr=both, text=True, timeout=180)
        if ran.returncode == 0:
            pairs = (self._notes / "env").read_text().split("\0")
            self.env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            self.place = Path((self._notes / "pwd").read_text().strip())
        return ran.returncode, LIBRARY.sub("", ran.stdout)


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
        for one in self.running:
            one.end()

    # --- rows

    def play(self, row: Row) -> None:
        """What comes first, the command, and what it must print."""
        for word in row.first:
            self.happens(word)
        output = self.said(row)
        assert matches(row.prints, output), f"{row}\nprints\n{output}\nand not\n" + "\n".join(row.prints)

    def said(self, row: Row) -> str:
        if STAYS.match(row.command):
            return self.follow(row)
        until = time.monotonic() + PATIENCE
        code, output = self.shell.run(row.command)
        while READS.match(row.command) and not (code == 0 and matches(row.prints, output)):
            if time.monotonic() > until:
                break
            time.sleep(LOOK)
            code, output = self.shell.run(row.command)
        assert code == 0, f"{row}\nended with {code}:\n{output}"
        return output

    def follow(self, row: Row) -> str:
        """Until it has printed that, or has ended."""
        one = self.start(row.command)
        until = time.monotonic() + PATIENCE
        while one.alive and time.monotonic() < until and not matches(row.prints, one.log.read_text()):
            time.sleep(LOOK)
        return one.log.read_text()

    def start(self, command: str) -> ControlPlaneProcess:
        """What goes on while the next rows are typed."""
        one = ControlPlaneProcess(
            command, self.shell.argv(command), self.folder / f"{len(self.running)}.log", self.shell.env
        )
        self.running.append(one)
        one.start()
        return one

    # --- what comes first

    def happens(self, word: str) -> None:
        if word.startswith("`") and word.endswith("`"):
            code, output = self.shell.run(word.strip("`"))
            assert code == 0, f"{word} ended with {code}:\n{output}"
            return
        for pattern, act in WORDS.items():
            if match := re.fullmatch(pattern, word):
                act(self, *match.groups())
                return
        raise AssertionError(f"{word!r} is no word of a story; known: {', '.join(WORDS)}")

    def by_hand(self) -> None:
        """A person starts the operator, with the variables that the shell has."""
        self.start("exec trainyard operator")

    def pods_end(self, number: str, which: str, code: str) -> None:
        """There are so many, all of them run, and then they end."""
        self.wait(lambda: list(map(_runs, self.pods(which))) == [True] * int(number), f"{number} pods {which} run")
        for pod in self.pods(which):
            name = pod["spec"]["containers"][0]["name"]
            where = ("-n", namespace_of(pod), name_of(pod), "-c", name)
            ran = self.plane.run("kubectl", "exec", *where, "--", "sh", "-c", END.format(code))
            assert ran.returncode in (0, KILLED), ran.stdout + ran.stderr

    def seen(self, url: str) -> None:
        """A page is opened in a pod of a job, where the names of the cluster are known."""
        code, name = self.shell.run(f"echo {url}")
        pod = next(one for one in self.pods("master-*") if _runs(one))
        where = ("-n", namespace_of(pod), name_of(pod))
        output = self.plane.kubectl("exec", *where, "--", "python", "-c", VISIT, name.strip())
        assert code == 0 and output.startswith("200 "), output

    def pods(self, which: str) -> list[Json]:
        items: list[Json] = self.plane.ask("GET", "/api/v1/pods")[1]["items"]
        return [one for one in items if fnmatch.fnmatch(name_of(one), which)]

    def wait(self, true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < until, f"it does not happen that {what}"
            time.sleep(LOOK)


def _runs(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


WORDS: dict[str, Callable[..., None]] = {
    r"(\d+) pods? (\S+) ends? with (\d+)": Story.pods_end,
    r"a pod sees (http://\S+)": Story.seen,
    r"the operator is started by hand": Story.by_hand,
}
