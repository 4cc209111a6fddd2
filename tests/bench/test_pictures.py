"""The pictures of docs/performance.md, from a run with few values."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers import ROWS
from bench.pictures import cumulative, pictures
from tests.bench.test_svg import SVG, charts_of, curves, parsed, position

ROOT = Path(__file__).parents[2]
OURS = {
    "idle.pod": [0.010, 0.020, 0.030, 0.040],
    "idle.bare": [0.002, 0.004],
    "replicas.100.seconds": [1.0, 1.2, 1.1],
    "replicas.1000.seconds": [11.0, 9.0, 10.0],
}
RUN = {
    "date": "2026-11-25",
    "cores": 2,
    "rows": ["idle", "growth"],
    "rounds": 3,
    "replicas": 1000,
    "jobs": 300,
    "samples": {"trainyard": OURS, "training-operator": {"idle.pod": [0.015, 0.025]}},
}


def drawn(run: dict[str, Any]) -> dict[str, str]:
    return dict(pictures(run))


def test_only_measured_rows_have_a_picture() -> None:
    assert list(drawn(RUN)) == ["latency.svg", "growth-replicas.svg"]
    assert drawn({**RUN, "samples": {}}) == {}


def test_a_latency_curve_reaches_each_share_at_its_value() -> None:
    (chart,) = charts_of(drawn(RUN)["latency.svg"])
    x, y = position(chart, "x", True), position(chart, "y", False)
    curve = curves(chart)["trainyard"]
    assert set(curves(chart)) == {"trainyard", "training-operator", "a bare Pod"}
    for value, share in ((10, 0), (10, 25), (20, 25), (20, 50), (40, 75), (40, 100)):
        assert (pytest.approx(x(value), abs=0.02), pytest.approx(y(share), abs=0.02)) in curve


def test_a_growth_curve_has_the_medians_and_says_the_exponent() -> None:
    text = drawn(RUN)["growth-replicas.svg"]
    (chart,) = charts_of(text)
    x, y = position(chart, "x", True), position(chart, "y", True)
    medians = [(pytest.approx(x(100), abs=0.02), pytest.approx(y(1.1), abs=0.02))]
    medians.append((pytest.approx(x(1000), abs=0.02), pytest.approx(y(10), abs=0.02)))
    assert curves(chart)["trainyard"] == medians
    assert f"exponent {math.log10(10 / 1.1):.2f}" in (parsed(text).findtext(f"{SVG}desc") or "")


def test_a_cumulative_curve_is_sorted() -> None:
    assert cumulative([3, 1]) == [(1, 0), (1, 50), (3, 50), (3, 100)]


@pytest.mark.parametrize("whole", [False, True])
def test_the_program_writes_the_pictures_and_the_table_of_a_whole_run(tmp_path: Path, whole: bool) -> None:
    page, marks = tmp_path / "page.md", "<!-- table peers -->\n<!-- end peers -->\n"
    page.write_text(marks)
    run = {**RUN, "rows": ROWS} if whole else RUN
    (tmp_path / "run.json").write_text(json.dumps(run))
    command = [sys.executable, "-m", "bench.pictures", str(tmp_path / "run.json"), str(tmp_path / "pictures")]
    subprocess.run([*command, "--page", str(page)], cwd=ROOT, check=True)
    written = {path.name: path.read_text() for path in (tmp_path / "pictures").iterdir()}
    assert written == drawn(run)
    assert ("one-pod job, idle" in page.read_text()) == whole == (page.read_text() != marks)
