"""The tables of the benchmarks: a row for each measurement, with goal, ceiling, peers, ours, spread and ratios.

    row = Row("idle, to the first Pod", "ms", Goal(2, TIMES_CEILING))
    row.ours += [12.1, 13.4]
    print_table([row])

Every value is a cost: lower is better, and a ratio below 1 is in our favour.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ABSOLUTE, ABOVE_CEILING, TIMES_CEILING = "", "+", "x"


@dataclass(frozen=True, slots=True)
class Goal:
    """The most that the median may be: the value itself, so much above the ceiling, or so many times the ceiling."""

    value: float
    kind: str = ABSOLUTE

    def __str__(self) -> str:
        value = number(self.value)
        return {ABOVE_CEILING: f"+{value}", TIMES_CEILING: f"{value} x"}.get(self.kind, value)

    def limit(self, ceiling: float | None) -> float | None:
        """The goal in the unit of the row; None when it needs a ceiling and there is none."""
        if self.kind == ABSOLUTE:
            return self.value
        if ceiling is None:
            return None
        return ceiling + self.value if self.kind == ABOVE_CEILING else ceiling * self.value


@dataclass(slots=True)
class Row:
    """What was measured in all rounds. `peers`: by the name of the peer."""

    name: str
    unit: str = "s"
    goal: Goal | None = None
    ceiling: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    ours: list[float] = field(default_factory=list)

    def ratios(self) -> tuple[float | None, float | None, float | None]:
        """The median of ours over the goal, over that of the ceiling, and over that of the best peer."""
        ceiling = statistics.median(self.ceiling) if self.ceiling else None
        peer = min((statistics.median(values) for values in self.peers.values() if values), default=None)
        limit = self.goal.limit(ceiling) if self.goal else None
        ours = statistics.median(self.ours) if self.ours else None
        goal, of_ceiling, of_peer = (
            ours / other if ours is not None and other and other > 0 else None for other in (limit, ceiling, peer)
        )
        return goal, of_ceiling, of_peer


def print_table(rows: Iterable[Row]) -> None:
    """A column for whatever any of the rows has."""
    print_columns(lines_of(rows))


def lines_of(rows: Iterable[Row]) -> list[list[str]]:
    """The cells of the table, its head first. A column without content is left out."""
    rows = list(rows)
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    head = ["", "unit", "goal", "ceiling", *peers, "ours", "ours/goal", "/ceiling", "/best peer"]
    lines = [
        [
            row.name,
            row.unit,
            str(row.goal or ""),
            *(spread(values) for values in (row.ceiling, *(row.peers.get(name, []) for name in peers), row.ours)),
            *("" if ratio is None else f"{ratio:.2f} x" for ratio in row.ratios()),
        ]
        for row in rows
    ]
    columns = [column for column in zip(head, *lines, strict=True) if any(column[1:])]
    return [list(cells) for cells in zip(*columns, strict=True)]


def write_table(page: Path, name: str, rows: Iterable[Row]) -> None:
    """Put the table into a Markdown page, between `<!-- table NAME -->` and `<!-- end NAME -->`."""
    head, *lines = lines_of(rows)
    cells = [
        head,
        ["---"] * len(head),
        *([f"… {first.strip()}" if first[:1] == " " else first, *rest] for first, *rest in lines),
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    before, start, rest = page.read_text().partition(f"<!-- table {name} -->\n")
    _, end, after = rest.partition(f"<!-- end {name} -->\n")
    if not end:
        raise SystemExit(f"{page}: there is no line `<!-- table {name} -->` with a line `<!-- end {name} -->` after it")
    page.write_text(f"{before}{start}\n{table}\n\n{end}{after}")


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Lines of cells, the first one the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        first, *others = (
            f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        print("  ".join((first, *others)).rstrip())


def spread(values: Sequence[float]) -> str:
    """The median and the range."""
    if not values:
        return ""
    median = number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """With three digits, or all of a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def growth_exponent(costs: Mapping[float, float]) -> float:
    """The slope of log(cost) over log(size), by least squares; `costs`: size -> cost. NaN for fewer than two sizes."""
    logs = [(math.log(size), math.log(cost)) for size, cost in costs.items() if cost > 0]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope if len(logs) > 1 else math.nan


def write_json(path: Path | None, content: Any) -> None:
    """Write dataclasses, lists and dicts to the file; nothing without a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, default=asdict) + "\n")
