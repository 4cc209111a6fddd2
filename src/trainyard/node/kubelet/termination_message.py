"""The termination message of a container.

Rules: one file per run, mounted at `terminationMessagePath` in the container; its last 4096 bytes are the message. With
the policy FallbackToLogsOnError, a container that failed with an empty message gets the last lines of its log instead.

A container can replace both files: supervisor/safe_paths.py opens them, and a file that is not regular counts as
empty."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.node.sandbox.supervisor_client import Mount
from trainyard.node.supervisor import safe_paths
from trainyard.objects import Json

_DEFAULT = "/dev/termination-log"
_MAX_BYTES = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80


def message_file(folder: Path, container: str, run: int | str) -> Path:
    """The file behind terminationMessagePath of run number `run`."""
    return folder / "messages" / container / str(run)


def mount(container: Json, file: Path) -> Mount:
    """Create the empty file for the next run; returns its mount. Any user in the container may write to it. Raises
    OSError."""
    folder, path = _split(file)
    Path(folder).mkdir(parents=True, exist_ok=True)
    os.close(safe_paths.create_file(folder, path, 0o666))
    target = str(container.get("terminationMessagePath") or _DEFAULT)
    return Mount(str(file), os.path.normpath("/" + target.lstrip("/")))


def read(container: Json, file: Path, log: Path, code: int) -> str:
    """The termination message of a finished run; `code` is its exit code."""
    message = _tail(file, _MAX_BYTES)
    if not message and code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = _tail(log, _LOG_BYTES).splitlines(keepends=True)
        message = b"".join(lines[-_LOG_LINES:])
    return message.decode(errors="replace")


def _tail(file: Path, size: int) -> bytes:
    try:
        with os.fdopen(safe_paths.open_file(*_split(file)), "rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - size))
            return opened.read(size)
    except OSError:
        return b""


def _split(file: Path) -> tuple[str, str]:
    """`<folder>/<container>/<run>`: a container can change what is below the folder."""
    return str(file.parents[1]), f"{file.parent.name}/{file.name}"
