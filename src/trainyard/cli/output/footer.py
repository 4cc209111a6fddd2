"""The lines that a terminal shows below all other output and that are redrawn after every batch of it: the open lines
of the replicas, such as progress bars, and the progress line of the command.

Rule: every line fits the terminal's width, so the number of lines on the terminal is known when they are erased.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Sequence

from trainyard.cli.output.layout import ELLIPSIS, terminal_width
from trainyard.objects.printable import printable, without_colours

MAX_OPEN_LINES = 8
_ERASE_BELOW = b"\x1b[J"


class Footer:
    """`open_lines`: prefix -> last state of a line that a replica has not ended yet. `activities`: texts before the
    progress of the jobs."""

    def __init__(self) -> None:
        self.open_lines: dict[str, str] = {}
        self.activities: dict[str, str] = {}
        self.progress = ""

    def lines(self, ended: bool) -> list[bytes]:
        """The lines as they are drawn; none of them is ended by a newline. `ended`: without the progress line."""
        progress = "" if ended else " · ".join(filter(None, [*self.activities.values(), self.progress]))
        prefixes = sorted(self.open_lines)
        limit = max(1, min(MAX_OPEN_LINES, shutil.get_terminal_size().lines // 2))
        shown = prefixes if len(prefixes) <= limit else prefixes[: limit - 1]
        width = max((len(prefix) for prefix in shown), default=0)
        texts = [
            f"{prefix.ljust(width)} | {self.open_lines[prefix]}" if prefix else self.open_lines[prefix]
            for prefix in shown
        ]
        if len(shown) < len(prefixes):
            texts.append(f"... and {len(prefixes) - len(shown)} more lines are open")
        texts += [progress] if progress else []
        return [_fit(printable(text, line=True), terminal_width() - 1).encode("utf-8", "replace") for text in texts]


def open_line_text(line: bytes) -> str:
    """An open line as text without colours."""
    return without_colours(line).decode("utf-8", "replace")


def erasing(lines: Sequence[bytes]) -> bytes:
    """The bytes that erase these lines; the cursor is at the end of the last one."""
    if not lines:
        return b""
    up = b"\x1b[%dA" % (len(lines) - 1) if len(lines) > 1 else b""
    return b"\r" + up + _ERASE_BELOW


def _fit(text: str, width: int) -> str:
    """The text cut to so many columns of a terminal; wide East Asian characters take two."""
    columns = 0
    for position, letter in enumerate(text):
        columns += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if columns > width:
            return text[: max(0, position - 1)] + ELLIPSIS
    return text
