"""A reader of the pages: types the commands of a page's console blocks into a shell of their own, and compares.

A block is preceded by a comment that says how it is run (`<!-- runs as a test ... -->`). Commands of one session share
environment variables, working directory and files, as in one terminal. What a page shows is compared line by line with
what was printed on a terminal of 80 columns, stdout and stderr together; numbers, times and generated names may differ,
the order of lines too (replicas print side by side), and `...` stands for any lines."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.control_plane_build import find_kubectl
from tests.support.waiting import SLOW_PAUSE, NotInTime, until

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"(?:<!--\s*(?P<mark>[^>]*?)\s*-->\n)?```console\n(?P<text>.*?)```", re.S)
_SESSION = re.compile(r"runs as a test(?:: (?P<session>[a-z-]+))?")
_ELSEWHERE = re.compile(r"runs in (?P<file>tests/\S+?)[.,;]?(\s|$)")
_HOME = "/home/ann"  # whose terminal the pages show
# What shows a state is typed again until the state is there: a reader, too, looks again.
_SHOWS = re.compile(r"(trainyard (get|describe|logs|why|events|status)|kubectl (get|logs))\b")
_KUBECTL = re.compile(r"\bkubectl\b")
# These run until somebody presses Ctrl-C.
_ENDLESS = re.compile(r"\b(logs -f|get .*-w|kubectl proxy|trainyard (node|operator)\b)")
LONGEST = 240.0  # seconds for one command: the first one may install an environment


@dataclass(frozen=True, slots=True)
class Command:
    """One line after `$ ` and what the page shows below it."""

    line: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One console block. `session` "": it is run by itself; None: it is run by `elsewhere`, or not at all."""

    page: str
    line: int
    session: str | None
    elsewhere: str
    commands: tuple[Command, ...]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs_kubectl(self) -> bool:
        return any(_KUBECTL.search(command.line) for command in self.commands)


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        mark = match["mark"] or ""
        ours, theirs = _SESSION.search(mark), _ELSEWHERE.search(mark)
        commands = []
        for part in re.split(r"^\$ ", match["text"], flags=re.M)[1:]:
            line, *shown = part.rstrip("\n").split("\n")
            while line.endswith("\\"):
                line = f"{line}\n{shown.pop(0)}"
            commands.append(Command(line, tuple(shown)))
        yield Block(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, match.start("text")) + 1,
            session=(ours["session"] or "") if ours else None,
            elsewhere=theirs["file"] if theirs else "",
            commands=tuple(commands),
        )


class _Output:
    """What is printed on a terminal of 80 columns until the block of this context ends."""

    _END = b"\0"

    def __enter__(self) -> _Output:
        self._ours, self.terminal = os.openpty()
        termios.tcsetwinsize(self.terminal, (24, 80))
        self.printed = bytearray()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not to the end of the stream: a cluster in the background may have the terminal open.
        os.write(self.terminal, self._END)
        self._thread.join()
        os.close(self.terminal)
        os.close(self._ours)

    def _read(self) -> None:
        while self._END not in self.printed:
            self.printed += os.read(self._ours, 1 << 16)
        del self.printed[self.printed.index(self._END) :]


@dataclass
class Terminal:
    """One shell: what was exported and where one is lasts from command to command."""

    folder: Path
    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def opened(cls, place: Path) -> Terminal:
        """In a folder that has what a checkout has for its user, with a home of its own and `trainyard` on PATH."""
        home, folder = place / "home", place / "trainyard"
        home.mkdir()
        folder.mkdir()
        for name in ("examples", "charts", "deploy", "config"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "bin").mkdir()
        program = folder / "bin" / "trainyard"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m trainyard "$@"\n')
        program.chmod(0o755)
        tools = place / "tools"
        tools.mkdir()
        if kubectl := find_kubectl():
            (tools / "kubectl").symlink_to(kubectl)  # without what lies beside it: a page finds what a user would
        kept = ("LANG", "TZ", "PIP_", "UV_", "SSL_", "http", "no_proxy", "HTTP", "NO_PROXY", "PYTHONPATH")
        env = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        folders = [part for part in os.environ["PATH"].split(":") if part != str(Path(sys.executable).parent)]
        path = ":".join([*folders, str(tools)])
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # Environments of images are shared with other tests: each takes minutes and gigabytes.
        env |= {"HOME": str(home), "TERM": "dumb", "PATH": path, "XDG_CACHE_HOME": str(cache)}
        return cls(folder, home, env)

    def look(self, command: Command) -> tuple[list[str], list[str]]:
        """What the command printed, and the lines of the page that were not among it."""
        printed: list[str] = []

        def look() -> bool:
            nonlocal printed
            printed = self.type(command.line, command.shown)[1]
            return not self.missing(command.shown, printed) or not _SHOWS.match(command.line)

        with contextlib.suppress(NotInTime):  # the caller tells which lines are missing
            until(look, "it prints what the page shows", seconds=LONGEST, pause=0.5)
        return printed, self.missing(command.shown, printed)

    def type(self, line: str, shown: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        """Exit code and lines of one command. One that never ends is interrupted when it has printed what is shown."""
        state = self.home / ".terminal"
        script = f"{line}\nstatus=$?\n{{ pwd; env -0; }} > {shlex.quote(str(state))}\nexit $status"
        with _Output() as output:
            shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", script],
                cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=output.terminal,
                stderr=output.terminal, start_new_session=True,
            )  # fmt: skip
            try:
                if _ENDLESS.search(line):
                    self._wait_for(shell, output, shown)
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(shell.pid, signal.SIGINT)
                code = shell.wait(LONGEST)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
        if state.exists():
            where, _, variables = state.read_bytes().partition(b"\n")
            self.folder = Path(os.fsdecode(where))
            pairs = (os.fsdecode(entry).partition("=") for entry in variables.split(b"\0") if entry)
            self.env = {name: value for name, _, value in pairs if name not in ("_", "SHLVL", "status")}
            state.unlink()
        return code, _lines(bytes(output.printed))

    def _wait_for(self, shell: subprocess.Popen[bytes], output: _Output, shown: tuple[str, ...]) -> None:
        def look() -> bool:
            printed = _lines(bytes(output.printed))
            return shell.poll() is not None or (bool(printed) and not self.missing(shown, printed))

        with contextlib.suppress(NotInTime):  # the caller tells which lines are missing
            until(look, "it prints what the page shows", seconds=LONGEST, pause=SLOW_PAUSE)

    def missing(self, shown: tuple[str, ...], printed: list[str]) -> list[str]:
        """The lines of the page that were not printed."""
        shapes = {shape(self._as_on_the_page(line)) for line in printed}
        return [line for line in shown if line.strip() != "..." and shape(line) not in shapes]

    def _as_on_the_page(self, line: str) -> str:
        return line.replace(str(self.home), _HOME)


def _lines(printed: bytes) -> list[str]:
    return [line.rstrip() for line in printed.decode(errors="replace").splitlines()]


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, times, generated names, widths of columns."""
    line = re.sub(r"RuntimeId: +\w+", "RuntimeId: #", line.rstrip())
    line = re.sub(
        r"\b(tfjob|mxjob|master|worker|ps|scheduler|server|cm-ps|tensorboard)-[a-z0-9]{4}(?=\b|-)", r"\1-#", line
    )
    line = re.sub(r"(?<=-)[a-z0-9]{5}(?=\s|$|,)", "#", line)  # what a generated name of a pod ends with
    line = re.sub(r"[0-9][0-9A-Za-z:.,/%TZ-]*", "#", line)
    return re.sub(r"\s+", " ", line)
