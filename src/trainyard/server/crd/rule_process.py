"""Evaluates the validation rules of CRDs in a separate process: `python -m trainyard.server.crd.rule_process`.

    RULES.problems(schema, new, old)      as `evaluate` of rules.py, with limits on CPU time and memory

The engine limits the iterations of an expression, but neither its memory (`self.a.replace("a", self.a)`) nor the time
of a single function. So the kernel enforces both limits: the process is killed after BUDGET seconds of CPU time, and
gets at most MEMORY bytes. The write is then refused, and the next one starts a new process.

Messages in both directions are a length (four bytes, big-endian) and JSON. The process exits when stdin is closed.
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
from trainyard.server.crd import cel
from trainyard.server.crd.rules import BUDGET, OUT_OF_BUDGET, Tree, compile_rules, evaluate

MEMORY = 512 << 20  # bytes, in addition to the use of Python and the engine
SLACK = 1.0  # seconds of CPU time beyond BUDGET, which `evaluate` enforces between two rules
ANSWER_SECONDS = 30.0  # seconds of wall time: other processes may use the CPUs
_LENGTH = struct.Struct("!I")
_WHOLE_OBJECT = "(the whole object)"


class RuleProcess:
    """One process for all CRDs, started at the first evaluation."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._schema_numbers: dict[bytes, int] = {}  # schemas that were sent to the process, with their numbers
        self._lock = threading.Lock()

    def problems(self, schema: bytes, new: Json, old: Json | None) -> list[Problem]:
        """The problems of a write; one problem when the rules exceed their limits. None without an engine."""
        if not cel.is_engine_installed():
            return []
        with self._lock:
            process = self._running_process()
            is_new = schema not in self._schema_numbers
            number = self._schema_numbers.setdefault(schema, len(self._schema_numbers))
            question = {"number": number, "schema": decode(schema) if is_new else None, "new": new, "old": old}
            try:
                _send(process.stdin, encode(question))
                answer = _receive(process.stdout, ANSWER_SECONDS)
            except (OSError, EOFError):
                return [Problem(_WHOLE_OBJECT, f"Forbidden: {OUT_OF_BUDGET}: {self._end_process()}")]
            return [Problem(path, text) for path, text in decode(answer)]

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._schema_numbers.clear()
            argv = [sys.executable, "-P", "-m", __spec__.name]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True)
        return self._process

    def _end_process(self) -> str:
        """Kill the process; return why there was no answer."""
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
    """One message. Raises EOFError at the end of the pipe, TimeoutError."""
    if pipe is None:
        raise EOFError
    (length,) = _LENGTH.unpack(_read(pipe.fileno(), _LENGTH.size, seconds))
    return _read(pipe.fileno(), length, seconds)


def _read(descriptor: int, length: int, seconds: float | None) -> bytes:
    received = b""
    while len(received) < length:
        if seconds is not None and not select.select([descriptor], [], [], seconds)[0]:
            raise TimeoutError
        chunk = os.read(descriptor, length - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return received


def main() -> None:
    """Answer requests until stdin is closed."""
    cel.is_engine_installed()  # loads the engine before the limit is set, so that its memory does not count
    with contextlib.suppress(OSError):  # without /proc only the CPU time is limited
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    trees: dict[int, Tree | None] = {}
    while True:
        try:
            question: dict[str, Any] = decode(_receive(sys.stdin.buffer))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, BUDGET + SLACK)  # SIGPROF kills the process
        if question["schema"] is not None:
            trees[question["number"]] = compile_rules(question["schema"])
        tree = trees[question["number"]]
        problems = list(evaluate(tree, question["new"], question["old"])) if tree else []
        answer = encode([(problem.path, problem.text) for problem in problems])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(sys.stdout.buffer, answer)


if __name__ == "__main__":
    main()
