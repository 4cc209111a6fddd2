"""The curves of a run as inline SVG: a chart for each name, with the spread over the replicas. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from trainyard.cli.output.html import Html, element
from trainyard.objects.numbers import number_text
from trainyard.page.series import Curve, Spread

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 480, 180, 64, 20, 8, 12  # pixels
TICKS = 4
SOURCES = {"file": "from $TRAINYARD_METRICS", "output": "JSON in the output", "pattern": "guessed from the output"}


def curve_figure(curve: Curve, spread: Spread | None) -> Html:
    """The chart of one name, with its last, lowest and highest value as text. The dashed line is the median of the
    replicas, and the area goes from their lowest to their highest value. A vertical line marks a value that is not
    finite."""
    source = SOURCES.get(curve.source, f"event files in {curve.source}")
    caption = f"{_summary(curve)}; {f'{curve.replica} {source}'.strip()}"
    if spread is not None:
        caption += f"; area: lowest to highest of {spread.replicas} replicas, dashed: median"
    scale = _Scale(
        [*curve.step, *(spread.step if spread else ())],
        [*curve.min, *curve.max, *(spread.min if spread else ()), *(spread.max if spread else ())],
    )
    parts = list(_axes(scale))
    for x in dict.fromkeys(scale.x(curve.step[index]) for index in curve.not_finite):
        parts.append(element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="not-finite"))
    if spread is not None:
        area = [*zip(spread.step, spread.max, strict=True), *reversed([*zip(spread.step, spread.min, strict=True)])]
        parts.append(element("polygon", points=scale.points(area)))
        median = scale.points(zip(spread.step, spread.median, strict=True))
        parts.append(element("polyline", points=median, class_="median"))
    parts.append(element("polyline", points=scale.points(zip(curve.step, curve.value, strict=True)), class_="curve"))
    chart = element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{curve.name}: {caption}")
    return element("figure", element("h3", curve.name), element("figcaption", caption), chart)


def _summary(curve: Curve) -> str:
    summary = f"last {number_text(curve.value[-1])} at step {number_text(curve.step[-1])}"
    if curve.not_finite_since is not None:
        summary += f", not finite since step {number_text(curve.not_finite_since)}"
    if bounds := [bound for bound in (*curve.min, *curve.max) if math.isfinite(bound)]:
        summary += f", lowest {number_text(min(bounds))}, highest {number_text(max(bounds))}"
    return summary


class _Scale:
    """Steps and values to pixels."""

    def __init__(self, steps: Sequence[float], values: Sequence[float]) -> None:
        self.steps, self.values = _range(steps), _range(values)

    def x(self, step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * _share(step, *self.steps), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * _share(value, *self.values), 1)

    def points(self, pairs: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(step):g},{self.y(value):g}" for step, value in pairs if math.isfinite(value))


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest finite value, or more where there is but one; 0 to 1 without any."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    return low - margin, high + margin


def _share(value: float, low: float, high: float) -> float:
    """0 at `low` to 1 at `high`; halves, because a difference of large numbers may be infinite."""
    return (value / 2 - low / 2) / (high / 2 - low / 2)


def _axes(scale: _Scale) -> Iterator[Html]:
    for tick in range(TICKS):
        share = tick / (TICKS - 1)
        step, value = (low * (1 - share) + high * share for low, high in (scale.steps, scale.values))
        anchor = "end" if tick == TICKS - 1 else "start" if tick == 0 else "middle"
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=scale.y(value), y2=scale.y(value))
        yield element("text", number_text(value), x=LEFT - 6, y=scale.y(value) + 4, text_anchor="end")
        yield element("text", number_text(step), x=scale.x(step), y=HEIGHT - 4, text_anchor=anchor)
