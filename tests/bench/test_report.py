"""The tables of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.peers import IDLE, table
from bench.report import ABOVE_CEILING, TIMES_CEILING, Goal, Row, growth_exponent, print_table, write_json, write_table


@pytest.mark.parametrize(
    ("goal", "text", "limit"),
    [(Goal(5), "5", 5), (Goal(0.4, ABOVE_CEILING), "+0.4", 2.4), (Goal(1.5, TIMES_CEILING), "1.5 x", 3)],
)
def test_a_goal_may_be_relative_to_the_ceiling(goal: Goal, text: str, limit: float) -> None:
    assert str(goal) == text
    assert goal.limit(2) == pytest.approx(limit)


def test_a_relative_goal_without_a_ceiling_has_no_limit() -> None:
    assert Goal(2, TIMES_CEILING).limit(None) is None


def test_ratios_are_those_of_medians_and_of_the_best_peer() -> None:
    row = Row("row", "s", Goal(8), [2, 3, 100], {"slow": [20], "fast": [5, 6, 4], "absent": []}, [6, 60, 5])
    assert row.ratios() == (6 / 8, 6 / 3, 6 / 5)


def test_a_table_has_the_columns_that_have_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Row("first", "s", Goal(1), [], {"peer": [4]}, [2]), Row("second", "ms", ours=[3, 1, 2])])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["unit", "goal", "peer", "ours", "ours/goal", "/best", "peer"]
    assert first.split() == ["first", "s", "1", "4", "2", "2.00", "x", "0.50", "x"]
    assert second.split() == ["second", "ms", "2", "(1", "to", "3)"]


def test_a_table_is_put_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table a -->\nold\n<!-- end a -->\nafter\n")
    for _ in range(2):
        write_table(page, "a", [Row("first", "s", ours=[2]), Row("  second", "s", ours=[3])])
    table = "\n| | unit | ours |\n| --- | --- | --- |\n| first | s | 2 |\n| … second | s | 3 |\n\n"
    assert page.read_text().replace("|  |", "| |") == f"before\n<!-- table a -->\n{table}<!-- end a -->\nafter\n"


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n<!-- table a -->\n")
    with pytest.raises(SystemExit, match="<!-- end a -->"):
        write_table(page, "a", [Row("first", "s", ours=[2])])
    assert page.read_text() == "text\n<!-- table a -->\n"


def test_a_number_has_three_digits_and_no_power_of_ten(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Row("row", ours=[0.0612345, 3012.4, 17.888])])
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=2)[2] == "17.9 (0.0612 to 3,012)"


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_the_exponent_of_growth(exponent: float) -> None:
    assert growth_exponent({size: 3 * size**exponent for size in (10, 100, 1000)}) == pytest.approx(exponent)


def test_rows_are_written_as_json(tmp_path: Path) -> None:
    write_json(tmp_path / "build" / "rows.json", [Row("first", "s", Goal(1), ours=[2])])
    (row,) = json.loads((tmp_path / "build" / "rows.json").read_text())
    assert row["name"] == "first"
    assert row["goal"] == {"value": 1, "kind": ""}
    assert row["ours"] == [2]


def test_the_rows_of_the_peers() -> None:
    ours = {
        "idle.pod": [0.01] * (2 * IDLE - 1) + [0.05],
        "idle.bare": [0.005],
        "replicas.100.seconds": [1.0, 1.0],
        "replicas.1000.seconds": [10.0, 100.0],
        "replicas.1000.ceiling.seconds": [5.0, 25.0],
    }
    theirs = {"replicas.1000.seconds": [30.0, 40.0], "replicas.1000.ceiling.seconds": [10.0, 10.0]}
    rows = {row.name.strip(): row for row in table({"trainyard": ours, "peer": theirs}, 1000, 300)}
    idle = rows["one-pod job, idle, to its Pod"]
    assert (idle.ours[-1], idle.ceiling, idle.peers) == (50, [5], {})
    assert rows[f"the slowest of {IDLE}"].ours == [10, 50]
    over = rows["over the ceiling of the same objects"]
    assert (over.ours, over.peers) == ([2, 4], {"peer": [3, 4]})
    growth = rows["growth in replicas: exponent of time"]
    assert (growth.ours, growth.peers) == ([pytest.approx(1), pytest.approx(2)], {})
    assert not any("TfJob" in name or "jobs at" in name for name in rows)
