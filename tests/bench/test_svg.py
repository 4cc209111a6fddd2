"""A picture says what its values say: every point is where the labels of the axes put it."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.svg import Axis, Chart, Line, picture, scale_of

SVG = "{http://www.w3.org/2000/svg}"
Position = Callable[[float], float]


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314  (our own)


def charts_of(text: str) -> list[ElementTree.Element]:
    return parsed(text).findall(f"{SVG}g")


def texts(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [text for text in element.iter(f"{SVG}text") if text.get("class") == name]


def position(chart: ElementTree.Element, axis: str, log: bool) -> Position:
    """Where a value has to be drawn, from the first and the last label of the axis."""
    shift = 4 if axis == "y" else 0  # a label stands a little lower than its tick
    labels = texts(chart, axis)
    low, high = ((float(label.text or ""), float(label.get(axis) or "") - shift) for label in (labels[0], labels[-1]))

    def place(value: float) -> float:
        start, end, at = (math.log(v) if log else v for v in (low[0], high[0], value))
        return low[1] + (at - start) / (end - start) * (high[1] - low[1])

    return place


def curves(chart: ElementTree.Element) -> dict[str, list[tuple[float, float]]]:
    return {
        line.findtext(f"{SVG}title") or "": [
            tuple(float(number) for number in point.split(",")) for point in (line.get("points") or "").split()
        ]
        for line in chart.iter(f"{SVG}polyline")
    }


@pytest.mark.parametrize("log", [False, True])
def test_points_are_where_the_labels_put_them(log: bool) -> None:
    lines = [Line("ours", [(3, 7), (40, 12), (650, 90)]), Line("theirs", [(5, 30), (500, 41)])]
    text = picture("Times", "", [Chart("one", Axis("replicas", log), Axis("seconds", log), lines)])
    (chart,) = charts_of(text)
    x, y = position(chart, "x", log), position(chart, "y", log)
    drawn = curves(chart)
    assert list(drawn) == ["ours", "theirs"]
    for line in lines:
        assert drawn[line.name] == [
            (pytest.approx(x(across), abs=0.02), pytest.approx(y(up), abs=0.02)) for across, up in line.points
        ]


def test_ranges_and_marks_are_where_the_labels_put_them() -> None:
    line = Line("ours", [(100, 2), (1000, 20)], ranges=[(1.5, 4), (18, 30)])
    (chart,) = charts_of(picture("", "", [Chart("", Axis("replicas", True), Axis("s", True), [line])]))
    y = position(chart, "y", True)
    marks = [float(mark.get("cy") or "") for mark in chart.iter(f"{SVG}circle")]
    assert marks == [pytest.approx(y(2), abs=0.02), pytest.approx(y(20), abs=0.02)]
    bars = [path.get("d") or "" for path in chart.iter(f"{SVG}path") if "range" in (path.get("class") or "")]
    ends = [tuple(float(bar.split()[place]) for place in (2, 4)) for bar in bars]
    assert ends == [
        (pytest.approx(y(1.5), abs=0.02), pytest.approx(y(4), abs=0.02)),
        (pytest.approx(y(18), abs=0.02), pytest.approx(y(30), abs=0.02)),
    ]


def test_a_picture_has_title_description_axes_and_a_legend() -> None:
    lines = [Line("ours", [(1, 1), (2, 2)]), Line("a < b", [(1, 2), (2, 1)]), Line("linear", [(1, 1)], reference=True)]
    charts = [Chart(f"chart {number}", Axis("replicas"), Axis("seconds"), lines) for number in range(2)]
    text = picture("Time & size", "The median is 3 s.", charts, "2 cores")
    root = parsed(text)
    assert root.findtext(f"{SVG}title") == "Time & size"
    assert root.findtext(f"{SVG}desc") == "The median is 3 s."
    assert root.get("role") == "img"
    assert [label.text for label in texts(root, "label")] == ["replicas", "seconds"] * 2
    assert [entry.text for entry in texts(root, "legend")] == ["ours", "a < b", "linear"]
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_a_line_has_the_same_look_in_every_chart() -> None:
    ours, theirs = Line("ours", [(1, 1), (2, 2)]), Line("theirs", [(1, 2), (2, 1)])
    charts = [Chart("", Axis(""), Axis(""), lines) for lines in ([ours, theirs], [theirs])]
    looks = [
        {line.findtext(f"{SVG}title"): line.get("class") for line in chart.iter(f"{SVG}polyline")}
        for chart in charts_of(picture("", "", charts))
    ]
    assert looks[0]["theirs"] == looks[1]["theirs"] != looks[0]["ours"]


@given(st.lists(st.floats(1e-4, 1e6), min_size=1), st.booleans())
def test_a_scale_holds_all_values_between_round_ends(values: list[float], log: bool) -> None:
    scale = scale_of(values, 10, 110, log)
    assert list(scale.ticks) == sorted(set(scale.ticks))
    assert len(scale.ticks) >= 2
    for value in values:
        assert 10 - 1e-6 <= scale.at(value) <= 110 + 1e-6
