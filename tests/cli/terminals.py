"""A command whose stdout and stderr are each a pipe or a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Literal, NamedTuple

from tests.cli.run_values import private

COLUMNS = 80
Stream = Literal["pipe", "terminal"]


class Printed(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class _Reader:
    """Reads one stream of a process to its end, in a thread."""

    def __init__(self, stream: Stream) -> None:
        self._descriptor, self.writer = os.openpty() if stream == "terminal" else os.pipe()
        if stream == "terminal":
            termios.tcsetwinsize(self.writer, (24, COLUMNS))
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read)

    def start(self) -> None:
        """Begin to read; the caller's end of the stream is closed, so that the process has the last one."""
        os.close(self.writer)
        self._thread.start()

    def text(self) -> str:
        """Everything up to the end of the stream."""
        self._thread.join(60)
        os.close(self._descriptor)
        return b"".join(self._parts).decode().replace("\r\n", "\n")

    def _read(self) -> None:
        try:
            while part := os.read(self._descriptor, 1 << 16):
                self._parts.append(part)
        except OSError:  # EIO: the last process has closed its end of the terminal
            pass


def run_on(
    folder: Path, line: list[str], out: Stream = "pipe", err: Stream = "pipe", given: str = "", **variables: str
) -> Printed:
    """Run `trainyard` with these arguments in `folder`; `given` is its standard input."""
    hidden = ("COLUMNS", "KUBECONFIG", "TRAINYARD_YES")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {**private(folder), "HOME": str(folder), "NO_COLOR": "1", **variables}
    readers = _Reader(out), _Reader(err)
    process = subprocess.Popen(
        [sys.executable, "-m", "trainyard", *line],
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=readers[0].writer,
        stderr=readers[1].writer,
        text=True,
        start_new_session=True,
    )
    for reader in readers:
        reader.start()
    try:
        process.communicate(given, timeout=60)
    finally:
        process.kill()
    return Printed(process.returncode, *(reader.text() for reader in readers))
