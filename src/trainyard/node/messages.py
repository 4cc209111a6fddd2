"""What a container leaves to say when it ends: the termination message.

Rules: one file per run, at `terminationMessagePath` in the container; its last 4096 bytes are the message. With the
policy FallbackToLogsOnError a container that failed and wrote none has the last lines of its log instead."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.node.sandbox import Mount
from trainyard.objects import Json

_DEFAULT = "/dev/termination-log"
_LONGEST = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80


def file_of(folder: Path, container: str, run: int | str) -> Path:
    return folder / "messages" / container / str(run)


def mount(container: Json, file: Path) -> Mount:
    """An empty file for the next run, to be seen in the container. Whoever the program is, it may write there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    file.chmod(0o666)
    target = str(container.get("terminationMessagePath") or _DEFAULT)
    return Mount(str(file), os.path.normpath("/" + target.lstrip("/")))


def read(container: Json, file: Path, log: Path, code: int) -> str:
    """The message of a run that has ended."""
    said = _tail(file, _LONGEST)
    if not said and code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = _tail(log, _LOG_BYTES).splitlines(keepends=True)
        said = b"".join(lines[-_LOG_LINES:])
    return said.decode(errors="replace")


def _tail(file: Path, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - size))
            return opened.read(size)
    except OSError:
        return b""
