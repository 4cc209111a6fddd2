"""Python tracebacks in the last lines of a program's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.printable import quoted_path

_FRAME = lazy_pattern(r'^\s*File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_HEADER = lazy_pattern(r"^\s*Traceback \(most recent call last\)|^\s*(?:During handling of|The above exception)")
_CHAIN = re.compile(r"^\s*(?:During handling of|The above exception)")
_PREFIX = re.compile(r"^\[[a-z]+\d+\]: ?")  # torchrun's of a process: [rank1]: or [default1]:
_EXCEPTION = lazy_pattern(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s*(.*))?$")
_MESSAGE_RULE = "-" * 74  # Open MPI prints a message of its own, as of MPI_ABORT, between two of these
_LIBRARY = lazy_pattern(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<(?!string>|stdin>)|/lib-dynload/")
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
        """`TYPE: message`, cut to MAX_TEXT_LENGTH characters."""
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
        return f"{quoted_path(self.file)}:{self.line}{function}"


class Traceback(NamedTuple):
    """A traceback in the output: the index of its first line, that of its exception's line, and its frames' files."""

    start: int
    end: int
    exception: UncaughtException
    files: tuple[str, ...]


def tracebacks(lines: Sequence[str]) -> list[Traceback]:
    """The tracebacks that end with an exception, in the order of their ends. Exceptions that are chained ("During
    handling of ...") are one traceback. Processes whose lines have a prefix, such as [rank1]:, are read apart."""
    outputs: dict[str, list[tuple[int, str]]] = {}
    for index, line in enumerate(lines):
        prefix = _PREFIX.match(line)
        text = line[prefix.end() :] if prefix else line
        outputs.setdefault(prefix[0].strip() if prefix else "", []).append((index, text))
    outputs = {prefix: _without_launcher_messages(output) for prefix, output in outputs.items()}
    spans = [
        _traceback([text for _, text in output[start : end + 1]], output[start][0], output[end][0])
        for output in outputs.values()
        for start, end in _spans([text for _, text in output])
    ]
    return sorted(spans, key=lambda traceback: traceback.end)


def last_exception(lines: Sequence[str]) -> UncaughtException | None:
    """The last exception that a traceback precedes. None where there is no traceback."""
    in_order = tracebacks(lines)
    return in_order[-1].exception if in_order else None


def last_traceback(lines: Sequence[str]) -> Traceback | None:
    """The traceback that is the end of the output, as of an exception that nobody catches. None where something
    follows, and for one that Python ignores, as in a finalizer."""
    in_order = tracebacks(lines)
    last = max((index for index, line in enumerate(lines) if line.strip()), default=-1)
    if not in_order or in_order[-1].end != last or in_order[-1].exception.kind in ("KeyboardInterrupt", "SystemExit"):
        return None
    return None if lines[max(0, in_order[-1].start - 1)].startswith("Exception ignored in") else in_order[-1]


def _spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Index of the first line and of the exception's line of each traceback."""
    spans: list[tuple[int, int]] = []
    start = -1
    for index, line in enumerate(lines):
        if _CHAIN.match(line):
            if start < 0 and spans:
                start, _ = spans.pop()
        elif _FRAME.match(line) or _HEADER.match(line):
            if start < 0 or (_HEADER.match(line) and not _CHAIN.match(lines[index - 1])):
                start = index
        elif start >= 0 and line[:1] not in (" ", "\t", "") and _EXCEPTION.match(line):
            spans.append((start, index))
            start = -1
    return spans


def _without_launcher_messages(output: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines without the messages of mpirun inside a traceback: it writes to the same output as its processes, so
    that a message about the end of one comes between two lines of the traceback that this process prints."""
    kept: list[tuple[int, str]] = []
    in_traceback, message_end = False, -1
    for position, (index, line) in enumerate(output):
        if in_traceback and position > message_end and line == _MESSAGE_RULE:
            following = range(position + 1, len(output))
            message_end = next((end for end in following if output[end][1] == _MESSAGE_RULE), -1)
        if position > message_end:
            in_traceback = bool(_HEADER.match(line) or _FRAME.match(line)) or (
                in_traceback and (line[:1] in (" ", "\t", "") or not _EXCEPTION.match(line))
            )
            kept.append((index, line))
    return kept


def _traceback(lines: Sequence[str], start: int, end: int) -> Traceback:
    """The traceback in these lines, the last of which is that of the exception."""
    match = _EXCEPTION.match(lines[-1])
    exception = (
        UncaughtException(match[1].rpartition(".")[2], (match[2] or "").strip()) if match else UncaughtException("", "")
    )
    frames = [(index, frame) for index, line in enumerate(lines) if (frame := _FRAME.match(line))]
    first_line = max((index for index, line in enumerate(lines) if _HEADER.match(line)), default=0)
    for index, frame in reversed(frames):
        if index >= first_line and not _LIBRARY.search(frame[1]):
            source = "" if _FRAME.match(lines[index + 1]) or index + 2 >= len(lines) else lines[index + 1].strip()
            exception = exception._replace(file=frame[1], line=int(frame[2]), function=frame[3] or "", source=source)
            break
    return Traceback(start, end, exception, tuple(frame[1] for _, frame in frames))


def is_header(line: str) -> bool:
    """True for the first line of a traceback."""
    return bool(_HEADER.match(_PREFIX.sub("", line)))


def is_launcher_exception(raised: UncaughtException) -> bool:
    """Whether the exception only reports that a child process of a launcher failed."""
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
