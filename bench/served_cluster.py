"""A cluster of a benchmark in a process of its own, so that what looks at it costs another one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any


@contextlib.contextmanager
def served_cluster(module: str, stderr: IO[bytes] | None = None) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """The process of `python -m MODULE --serve FOLDER`, which ends with its standard input, and the JSON that it prints
    first: how to reach it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, "--serve", folder]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline()), server
        finally:
            server.communicate()  # closes its standard input
