"""Python tracebacks in the last lines of a program's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_HEAD = re.compile(r"^\s*Traceback \(most recent call last\)|^\s*(?:During handling of|The above exception)")
_EXCEPTION = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s*(.*))?$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<(?!string>|stdin>)|/lib-dynload/")
LAUNCHERS = ("ChildFailedError", "CalledProcessError", "RayTaskError", "ProcessRaisedException", "SystemExit")
"""Exceptions that say that another process has failed: its own words stand before them."""
LONGEST = 160


class Raised(NamedTuple):
    """An exception that nobody caught, and the last line of the user's own code that led to it."""

    kind: str  # KeyError, without its module
    message: str
    file: str = ""
    line: int = 0
    function: str = ""
    source: str = ""  # that line, where Python has shown it

    @property
    def text(self) -> str:
        words = f"{self.kind}: {self.message}" if self.message else self.kind
        return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"

    @property
    def place(self) -> str:
        """train.py:7, in train."""
        if not self.file:
            return ""
        if self.file in ("<string>", "<stdin>"):
            return (
                f"line {self.line} of its `python -c`" if self.file == "<string>" else f"line {self.line} of its input"
            )
        inside = f", in {self.function}" if self.function and not self.function.startswith("<") else ""
        return f"{self.file}:{self.line}{inside}"


def last_exception(lines: Sequence[str]) -> Raised | None:
    """The last exception that ended a program, by the traceback before it. None where there is no traceback."""
    frames = [at for at, line in enumerate(lines) if _FRAME.match(line)]
    heads = [at for at, line in enumerate(lines) if _HEAD.match(line)]
    if not frames and not heads:
        return None
    last = max(frames + heads)
    for at in range(last + 1, len(lines)):
        if lines[at][:1] not in (" ", "\t", "") and (match := _EXCEPTION.match(lines[at])):
            break
    else:
        return None
    kind = match[1].rpartition(".")[2]
    raised = Raised(kind, (match[2] or "").strip())
    for at in reversed(frames):
        if any(_HEAD.match(line) for line in lines[at : last + 1]):
            break  # that frame is of an exception before this one
        frame = _FRAME.match(lines[at])
        if frame and not _LIBRARY.search(frame[1]):
            below = lines[at + 1].strip() if at + 1 < len(lines) and not _FRAME.match(lines[at + 1]) else ""
            return raised._replace(
                file=frame[1], line=int(frame[2]), function=frame[3] or "", source=below if at < last + 1 else ""
            )
    return raised


def is_launcher(raised: Raised) -> bool:
    return raised.kind in LAUNCHERS


def without_frames(lines: Sequence[str]) -> list[str]:
    """The lines without the frames of tracebacks and the code in them: what they hold was not said by the program."""
    kept: list[str] = []
    inside = False
    for line in lines:
        if _HEAD.match(line) or _FRAME.match(line):
            inside = True
        elif not (inside and line[:1] in (" ", "\t")):
            inside = False
            kept.append(line)
    return kept
