"""Python tracebacks in the last lines of a program's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_HEADER = re.compile(r"^\s*Traceback \(most recent call last\)|^\s*(?:During handling of|The above exception)")
_EXCEPTION = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s*(.*))?$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<(?!string>|stdin>)|/lib-dynload/")
LAUNCHER_EXCEPTIONS = ("ChildFailedError", "CalledProcessError", "RayTaskError", "ProcessRaisedException", "SystemExit")
"""Exceptions that report the failure of another process: the output of that process precedes them."""
MAX_TEXT_LENGTH = 160


class UncaughtException(NamedTuple):
    """An uncaught exception, and the last line of the user's own code in its traceback."""

    kind: str  # name of the class without its module: KeyError
    message: str
    file: str = ""
    line: int = 0
    function: str = ""
    source: str = ""  # the text of that line, when the traceback has it

    @property
    def text(self) -> str:
        text = f"{self.kind}: {self.message}" if self.message else self.kind
        return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"

    @property
    def location(self) -> str:
        """The line as text: `train.py:7, in train`; "" when it is unknown."""
        if not self.file:
            return ""
        if self.file in ("<string>", "<stdin>"):
            return (
                f"line {self.line} of its `python -c`" if self.file == "<string>" else f"line {self.line} of its input"
            )
        function = f", in {self.function}" if self.function and not self.function.startswith("<") else ""
        return f"{self.file}:{self.line}{function}"


def last_exception(lines: Sequence[str]) -> UncaughtException | None:
    """The last exception that a traceback precedes. None where there is no traceback."""
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    headers = [index for index, line in enumerate(lines) if _HEADER.match(line)]
    if not frames and not headers:
        return None
    last = max(frames + headers)
    for index in range(last + 1, len(lines)):
        if lines[index][:1] not in (" ", "\t", "") and (match := _EXCEPTION.match(lines[index])):
            break
    else:
        return None
    kind = match[1].rpartition(".")[2]
    exception = UncaughtException(kind, (match[2] or "").strip())
    for index in reversed(frames):
        if any(_HEADER.match(line) for line in lines[index : last + 1]):
            break  # this frame belongs to an earlier exception
        frame = _FRAME.match(lines[index])
        if frame and not _LIBRARY.search(frame[1]):
            source_line = (
                lines[index + 1].strip() if index + 1 < len(lines) and not _FRAME.match(lines[index + 1]) else ""
            )
            return exception._replace(
                file=frame[1],
                line=int(frame[2]),
                function=frame[3] or "",
                source=source_line if index < last + 1 else "",
            )
    return exception


def is_launcher_exception(raised: UncaughtException) -> bool:
    return raised.kind in LAUNCHER_EXCEPTIONS


def without_frames(lines: Sequence[str]) -> list[str]:
    """The lines without the frames of tracebacks and their source lines, which are not output of the program."""
    program_lines: list[str] = []
    in_traceback = False
    for line in lines:
        if _HEADER.match(line) or _FRAME.match(line):
            in_traceback = True
        elif not (in_traceback and line[:1] in (" ", "\t")):
            in_traceback = False
            program_lines.append(line)
    return program_lines
