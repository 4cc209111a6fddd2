"""The rules of other people's definitions, asked in a process of their own: `python -m trainyard.server.rule_process`.

    RULES.problems(schema, new, old)      as `broken` of rules.py, whatever the rules do

The engine bounds how often an expression iterates, not how much memory it takes (`self.a.replace("a", self.a)`) nor how
long one function works. Here the kernel does: the process ends after BUDGET seconds of the processor, and gets no more
than MEMORY bytes. Then the write is refused, and the next one gets a new process.

Messages in both directions are a length (four bytes) and JSON. The process ends with its stdin.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from trainyard.objects import Json, Problem, decode, encode
from trainyard.server import cel
from trainyard.server.rules import BUDGET, OUT_OF_BUDGET, Tree, broken, compile_rules

MEMORY = 512 << 20  # beside what Python and the engine take
SLACK = 1.0  # seconds of the processor after BUDGET, which `broken` itself keeps between two rules
ANSWER_SECONDS = 30.0  # of the wall: the processors may be busy with others
_LENGTH = struct.Struct("!I")
_WHOLE = "(the whole object)"


class RuleProcess:
    """One process for all definitions, started with the first question."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[bytes, int] = {}  # schemas that the process has been sent
        self._lock = threading.Lock()

    def problems(self, schema: bytes, new: Json, old: Json | None) -> list[Problem]:
        """What the write breaks, or that its rules take too much. Nothing without an engine."""
        if not cel.present():
            return []
        with self._lock:
            process = self._running()
            fresh = schema not in self._known
            number = self._known.setdefault(schema, len(self._known))
            question = {"number": number, "schema": decode(schema) if fresh else None, "new": new, "old": old}
            try:
                _send(process.stdin, encode(question))
                answer = _receive(process.stdout, ANSWER_SECONDS)
            except (OSError, EOFError):
                return [Problem(_WHOLE, f"Forbidden: {OUT_OF_BUDGET}: {self._end()}")]
            return [Problem(path, text) for path, text in decode(answer)]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._known.clear()
            argv = [sys.executable, "-P", "-m", __spec__.name]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True)
        return self._process

    def _end(self) -> str:
        """Why there was no answer. There is no process after this."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGPROF:
            return f"they take more than {BUDGET:g} s of the processor"
        return f"they take more than {MEMORY >> 20} MiB, or break the engine"


RULES = RuleProcess()


def _send(pipe: IO[bytes] | None, body: bytes) -> None:
    if pipe is None:
        raise EOFError
    pipe.write(_LENGTH.pack(len(body)) + body)
    pipe.flush()


def _receive(pipe: IO[bytes] | None, seconds: float | None = None) -> bytes:
    """One message. Raises EOFError when there is none, TimeoutError."""
    if pipe is None:
        raise EOFError
    (length,) = _LENGTH.unpack(_read(pipe.fileno(), _LENGTH.size, seconds))
    return _read(pipe.fileno(), length, seconds)


def _read(descriptor: int, length: int, seconds: float | None) -> bytes:
    read = b""
    while len(read) < length:
        if seconds is not None and not select.select([descriptor], [], [], seconds)[0]:
            raise TimeoutError
        piece = os.read(descriptor, length - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read


def main() -> None:
    """Answer until stdin ends."""
    cel.present()  # before the limit: the engine's library is not the rules' doing
    with contextlib.suppress(OSError):  # without /proc only the time is limited
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    trees: dict[int, Tree | None] = {}
    while True:
        try:
            question: dict[str, Any] = decode(_receive(sys.stdin.buffer))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, BUDGET + SLACK)  # SIGPROF ends the process
        if question["schema"] is not None:
            trees[question["number"]] = compile_rules(question["schema"])
        tree = trees[question["number"]]
        found = list(broken(tree, question["new"], question["old"])) if tree else []
        answer = encode([(problem.path, problem.text) for problem in found])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(sys.stdout.buffer, answer)


if __name__ == "__main__":
    main()
