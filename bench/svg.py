"""Line charts as SVG text, with nothing but the standard library.

    chart = Chart("Idle", Axis("ms", log=True), Axis("share of the jobs, %"), [Line("trainyard", [(10, 0), (12, 100)])])
    Path("idle.svg").write_text(picture("Latency", "The median is 11 ms.", [chart]))

A picture has its own background, in light and in dark, by what the reader's system prefers: it is readable on any page.
Lines differ in colour and in dashes. `title` and `desc` are the text alternative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 320, 250  # of a chart, with its labels
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 46  # from its edges to the area of the curves
COLUMNS = 3  # charts beside each other
HEAD, LEGEND = 32, 48  # heights above and below the charts
STYLES = 4  # lines that differ; the fifth looks like the first
STYLE = """
.background { fill: #ffffff } text { fill: #24292f; font: 12px sans-serif } .title { font-weight: bold }
.axis { stroke: #57606a; fill: none } .grid { stroke: #d8dee4 } .curve { fill: none; stroke-width: 2 }
.s0 { stroke: #0969da } .s1 { stroke: #bc4c00; stroke-dasharray: 7 3 } .s2 { stroke: #1a7f37; stroke-dasharray: 2 3 }
.s3 { stroke: #8250df; stroke-dasharray: 9 3 2 3 }
.reference { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 4 4 }
circle { stroke-dasharray: none; fill: #ffffff } .range { stroke-width: 1; stroke-dasharray: none }
@media (prefers-color-scheme: dark) {
.background { fill: #0d1117 } text { fill: #e6edf3 } .axis { stroke: #8b949e } .grid { stroke: #30363d }
.s0 { stroke: #58a6ff } .s1 { stroke: #ffa657 } .s2 { stroke: #56d364 } .s3 { stroke: #d2a8ff }
.reference { stroke: #6e7681 } circle { fill: #0d1117 } }
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """`label` has the unit."""

    label: str
    log: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One curve. `ranges` gives for each point the least and the greatest value; `reference`: no measurement."""

    name: str
    points: Sequence[Point]
    ranges: Sequence[Point] = ()
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves in one pair of axes. On a logarithmic axis all values are above 0."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels: `low` is drawn at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: Sequence[float]

    def at(self, value: float) -> float:
        low, high, place = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (place - low) / (high - low) * (self.end - self.start)


def scale_of(values: Sequence[float], start: float, end: float, log: bool) -> Scale:
    """The scale whose ends are round numbers around the values."""
    ticks = _log_ticks(min(values), max(values)) if log else _linear_ticks(max(values))
    return Scale(ticks[0], ticks[-1], start, end, log, ticks)


def _log_ticks(least: float, greatest: float) -> list[float]:
    """1, 2 and 5 of each decade, around the values."""
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(greatest)) + 1)
    steps = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    low = max(step for step in steps if step <= least * (1 + 1e-9))
    high = min(step for step in (*steps, 10.0 ** (decades[-1] + 1)) if step >= greatest * (1 - 1e-9) and step > low)
    return [step for step in steps if low <= step <= high] + ([high] if high not in steps else [])


def _linear_ticks(greatest: float) -> list[float]:
    """From 0 in steps of 1, 2 or 5 of a decade, at most six."""
    decade = 10.0 ** math.floor(math.log10(greatest or 1))
    step = next(step for step in (decade / 5, decade / 2, decade, 2 * decade) if greatest <= 5 * step * (1 + 1e-9))
    return [step * number for number in range(math.ceil(greatest / step - 1e-9) + 1)]


def picture(title: str, description: str, charts: Sequence[Chart], note: str = "") -> str:
    """The charts beside each other under one title, with one legend; `description`: what a reader sees there."""
    columns = min(COLUMNS, len(charts))
    width = columns * WIDTH
    height = HEAD + math.ceil(len(charts) / columns) * HEIGHT + LEGEND
    names = list(dict.fromkeys(line.name for chart in charts for line in chart.lines if not line.reference))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="background" width="{width}" height="{height}"/>',
        f'<text class="title" x="{width / 2:g}" y="22" text-anchor="middle">{escape(title)}</text>',
    ]
    for number, chart in enumerate(charts):
        left, top = number % columns * WIDTH, HEAD + number // columns * HEIGHT
        parts += [f'<g transform="translate({left} {top})">', *_chart(chart, names), "</g>"]
    references = dict.fromkeys(line.name for chart in charts for line in chart.lines if line.reference)
    parts += _legend([*names, *references], names, height - LEGEND + 14)
    parts.append(f'<text x="{LEFT}" y="{height - 10}">{escape(note)}</text>')
    return "\n".join((*parts, "</svg>", ""))


def _style(name: str, names: Sequence[str]) -> str:
    return f"s{names.index(name) % STYLES}" if name in names else "reference"


def _chart(chart: Chart, names: Sequence[str]) -> Iterator[str]:
    points = [point for line in chart.lines for point in line.points]
    heights = [y for _, y in points] + [y for line in chart.lines for pair in line.ranges for y in pair]
    x = scale_of([x for x, _ in points], LEFT, WIDTH - RIGHT, chart.x.log)
    y = scale_of(heights, HEIGHT - BOTTOM, TOP, chart.y.log)
    middle = (x.start + x.end) / 2
    yield f'<text class="title" x="{middle:g}" y="{TOP - 12}" text-anchor="middle">{escape(chart.title)}</text>'
    yield from _ticks(x, y)
    yield f'<path class="axis" d="M {x.start} {y.end} V {y.start} H {x.end}"/>'
    yield f'<text class="label" x="{middle:g}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x.label)}</text>'
    yield f'<text class="label" x="{LEFT - 44}" y="{TOP - 12}">{escape(chart.y.label)}</text>'
    for line in chart.lines:
        yield from _curve(line, _style(line.name, names), x, y)


def _ticks(x: Scale, y: Scale) -> Iterator[str]:
    for value in _shown(x):
        yield f'<path class="grid" d="M {x.at(value):.2f} {y.start} V {y.end}"/>'
        yield f'<text class="x" x="{x.at(value):.2f}" y="{y.start + 16}" text-anchor="middle">{value:g}</text>'
    for value in _shown(y):
        yield f'<path class="grid" d="M {x.start} {y.at(value):.2f} H {x.end}"/>'
        yield f'<text class="y" x="{x.start - 6}" y="{y.at(value) + 4:.2f}" text-anchor="end">{value:g}</text>'


def _shown(scale: Scale) -> Sequence[float]:
    """The ticks with a label: over many decades only the powers of ten."""
    if not scale.log or len(scale.ticks) <= 7:
        return scale.ticks
    return [value for value in scale.ticks if math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)]


def _curve(line: Line, style: str, x: Scale, y: Scale) -> Iterator[str]:
    places = " ".join(f"{x.at(across):.2f},{y.at(up):.2f}" for across, up in line.points)
    yield f'<polyline class="curve {style}" points="{places}"><title>{escape(line.name)}</title></polyline>'
    for (across, up), (least, greatest) in zip(line.points, line.ranges, strict=False):
        place = f"{x.at(across):.2f}"
        yield f'<path class="range {style}" d="M {place} {y.at(least):.2f} V {y.at(greatest):.2f}"/>'
        yield f'<circle class="{style}" cx="{place}" cy="{y.at(up):.2f}" r="3"/>'


def _legend(entries: Sequence[str], names: Sequence[str], y: float) -> Iterator[str]:
    for number, name in enumerate(entries):
        x = LEFT + number * 160
        yield f'<path class="curve {_style(name, names)}" d="M {x} {y:g} h 28"/>'
        yield f'<text class="legend" x="{x + 34}" y="{y + 4:g}">{escape(name)}</text>'
