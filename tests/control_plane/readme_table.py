"""docs/readme-commands.md as a test reads it: rows, and whether an output is the one that a row shows.

Rules:
- A table has seven columns: line, printed, today, first, prints, step, why. A heading names its README.
- Cells hold code in backticks, several lines apart by <br>. A bar in code is written \\|.
- A line of output matches with its blanks collapsed. Words in angle brackets stand for what varies (`VARIES`), a line
  of three dots for any number of lines, none included. Nothing else stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "readme-commands.md"
COLUMNS = ["line", "printed", "today", "first", "prints", "step", "why"]
SAME, NOT_RUN, NOTHING = "same", "-", "nothing"
VARIES = {
    "age": r"(\d+[ywdhms])+",
    "id": r"[a-z0-9]+",
    "ip": r"\d+\.\d+\.\d+\.\d+",
    "number": r"\d+",
    "text": r"\S.*",
    "time": r"\"?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?\"?( \+0000 UTC)?",
    "uid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One command of one README."""

    readme: str
    line: str
    printed: str
    today: str
    first: tuple[str, ...]  # preparations: a command in backticks, or a sentence of readme_story.PREPARATIONS
    prints: tuple[str, ...]
    step: str
    why: str

    @property
    def command(self) -> str:
        """What is typed today."""
        return self.printed if self.today == SAME else self.today

    @property
    def runs(self) -> bool:
        return self.step != NOT_RUN

    def __str__(self) -> str:
        return f"{self.readme} README, line {self.line}: {self.command}"


def rows(text: str) -> list[Row]:
    return list(_rows(text))


def _rows(text: str) -> Iterator[Row]:
    readme = ""
    for line in text.splitlines():
        if match := re.match(r"## (\w+) README", line):
            readme = match[1]
        if not line.startswith("| ") or not readme:
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == COLUMNS:
            continue
        assert len(cells) == len(COLUMNS), f"a row of {len(cells)} cells: {line}"
        at, printed, today, first, prints, step, why = cells
        yield Row(readme, at, _code(printed), _code(today), _lines(first), _output(prints), step, why)


def _lines(cell: str) -> tuple[str, ...]:
    return tuple(line.strip().replace("\\|", "|") for line in cell.split("<br>") if line.strip())


def _code(cell: str) -> str:
    return "\n".join(line.strip("`") for line in _lines(cell))


def _output(cell: str) -> tuple[str, ...]:
    return () if cell == NOTHING else tuple(line.strip("`") for line in _lines(cell))


def pattern(line: str) -> re.Pattern[str]:
    """One line of a row as a regular expression."""
    parts = re.split(r"<(?!none>)(\w+)>", " ".join(line.split()))  # <none> is a word of kubectl's
    unknown = [name for name in parts[1::2] if name not in VARIES]
    assert not unknown, f"<{unknown[0]}> stands for nothing; known: {', '.join(VARIES)}"
    return re.compile("".join(VARIES[part] if at % 2 else re.escape(part) for at, part in enumerate(parts)))


def matches(shown: tuple[str, ...], output: str) -> bool:
    """Whether this is the output that a row shows."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    return _agree(shown, lines)


def _agree(shown: tuple[str, ...], lines: list[str]) -> bool:
    """Greedy: each stretch between dots is found at its first place, the last one at the end."""
    stretches: list[list[re.Pattern[str]]] = [[]]
    for line in shown:
        if line == "...":
            stretches.append([])
        else:
            stretches[-1].append(pattern(line))
    first, last = stretches[0], stretches[-1]
    if not _at(first, lines, 0):
        return False
    if len(stretches) == 1:
        return len(first) == len(lines)
    at = len(first)
    for stretch in stretches[1:-1]:
        place = next((here for here in range(at, len(lines) + 1) if _at(stretch, lines, here)), None)
        if place is None:
            return False
        at = place + len(stretch)
    return len(lines) - len(last) >= at and _at(last, lines, len(lines) - len(last))


def _at(stretch: list[re.Pattern[str]], lines: list[str], place: int) -> bool:
    candidates = lines[place : place + len(stretch)]
    return len(candidates) == len(stretch) and all(map(re.Pattern.fullmatch, stretch, candidates))
