"""What a container leaves to say when it ends: the termination message.

Rules: one file per run, at `terminationMessagePath` in the container; its last 4096 bytes are the message. With the
policy FallbackToLogsOnError a container that failed and wrote none has the last lines of its log instead.

A container can replace both files: hub/beneath.py opens them, and what is no regular file says nothing."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.node.hub import beneath
from trainyard.node.sandbox import Mount
from trainyard.objects import Json

_DEFAULT = "/dev/termination-log"
_LONGEST = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80


def file_of(folder: Path, container: str, run: int | str) -> Path:
    return folder / "messages" / container / str(run)


def mount(container: Json, file: Path) -> Mount:
    """An empty file for the next run, to be seen in the container. Whoever the program is, it may write there. Raises
    OSError."""
    folder, path = _split(file)
    Path(folder).mkdir(parents=True, exist_ok=True)
    os.close(beneath.create_file(folder, path, 0o666))
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
        with os.fdopen(beneath.open_file(*_split(file)), "rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - size))
            return opened.read(size)
    except OSError:
        return b""


def _split(file: Path) -> tuple[str, str]:
    """`<folder>/<container>/<run>`: a container can change what is below the folder."""
    return str(file.parents[1]), f"{file.parent.name}/{file.name}"
