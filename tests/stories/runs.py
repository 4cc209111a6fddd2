"""`trainyard run` as a user types it, in a process of its own, and its output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainyard.objects import Json

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
LONGEST = 240.0  # seconds of one run; one that builds its environment first gets them twice


class CommandOutput:
    """What the replicas of a job have printed, as our commands show it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def of(self, replica: str) -> list[str]:
        """What one replica printed."""
        split = (line.partition(" | ") for line in self.lines)
        return [text for name, bar, text in split if bar and name.strip() == replica]


class Run(CommandOutput):
    """`trainyard run`, as a person types it: results on stdout, everything else on stderr."""

    def __init__(
        self, *arguments: str, program: tuple[str, ...] = (sys.executable, "-m", "trainyard"), **more: Any
    ) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [*program, "run", "-o", "json", "--timeout", str(2 * LONGEST), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip

    def read_until(self, pattern: str) -> None:
        """Read the output until a line matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return
        raise AssertionError(f"{pattern!r} was not said:\n" + "\n".join(self.lines))

    def end(self, seconds: float = LONGEST) -> None:
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"no end; said: {self.lines}, {late.stderr!r}") from None
        finally:
            self.process.kill()
        self.code = self.process.returncode
        self.lines += err.splitlines()
        self.jobs: list[Json] = json.loads(out) if out else []


def run_to_end(*arguments: str, seconds: float = LONGEST, **more: Any) -> Run:
    run = Run(*arguments, **more)
    run.end(seconds)
    return run


def process_of(host: str, *arguments: str) -> int:
    """Our process whose host name matches and whose command line has these words, among all of this machine."""
    (pid,) = processes_of(host, *arguments)
    return pid


def processes_of(host: str, *arguments: str) -> list[int]:
    """The pids, in the order in which the processes were started: numbers are used again."""
    starts = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = re.search(rb"(^|\0)HOSTNAME=%b\0" % host.encode(), (path / "environ").read_bytes())
            command_line, ours = (path / "cmdline").read_bytes(), path.stat().st_uid == os.getuid()
            if named and ours and all(argument.encode() in command_line for argument in arguments):
                starts[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[19])
    return sorted(starts, key=lambda pid: (starts[pid], pid))


def succeeded(run: Run) -> Json:
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Succeeded")
    return job
