"""Curves: attempts as one, few points of many, and the spread over replicas."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.objects.metric_points import METRICS, MetricPoint, decode_points, encode_points, thin_out
from trainyard.page.series import (
    MAX_POINTS,
    MIXED,
    SeriesReader,
    StepsAndValues,
    as_one_curve,
    leading_first,
    spread_of,
)


def curve(*steps: float | None, value: float = 1.0, name: str = "loss") -> list[MetricPoint]:
    return [MetricPoint(name, "file", 100.0 + n, step, value) for n, step in enumerate(steps)]


def write(logs: Path, replica: str, attempt: int, points: list[MetricPoint]) -> Path:
    folder = logs / replica / f"attempt-{attempt}-ab12cd34"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / METRICS).open("ab") as file:
        file.write(encode_points(points))
    return folder / METRICS


def steps_of(points: list[MetricPoint]) -> list[float | None]:
    return [point.step for point in points]


def test_an_attempt_goes_on_at_a_checkpoint() -> None:
    assert steps_of(as_one_curve(curve(1, 2, 3, 4, 3, 4, 5))) == [1, 2, 3, 4, 5]
    assert [point.time for point in as_one_curve(curve(1, 2, 3, 4, 3, 4, 5))] == [100, 101, 104, 105, 106]
    assert steps_of(as_one_curve(curve(1, 2, 0))) == [0]


def test_values_without_steps_are_numbered() -> None:
    assert steps_of(as_one_curve(curve(None, None, 7))) == [1, 2, 3]


@given(st.lists(st.none() | st.floats(0, 100), max_size=50))
def test_steps_always_rise(steps: list[float | None]) -> None:
    rising = [step for step in steps_of(as_one_curve(curve(*steps))) if step is not None]
    assert all(before < after for before, after in itertools.pairwise(rising))


def test_the_spread_counts_a_replica_from_its_first_to_its_last_step() -> None:
    others: list[StepsAndValues] = [([0, 10, 20], [3.0, 3.0, 3.0]), ([10], [8.0])]
    spread = spread_of("loss", curve(0, 10, 20), others)
    assert spread is not None and spread.replicas == 3
    assert (spread.step, spread.min, spread.max) == ([0, 10, 20], [1, 1, 1], [3, 8, 3])
    assert spread.median == [2, 3, 2]
    assert spread_of("loss", curve(0, 10), []) is None


def test_the_replica_that_reports_for_the_job_leads() -> None:
    replicas = ["worker-10", "worker-2", "ps-0", "master-0", "chief-0"]
    assert sorted(replicas, key=leading_first) == ["chief-0", "master-0", "ps-0", "worker-2", "worker-10"]


def test_the_curves_of_a_job(tmp_path: Path) -> None:
    write(tmp_path, "master-0", 0, curve(1, 2, 3))
    write(tmp_path, "master-0", 1, curve(3, 4, value=0.5))
    write(tmp_path, "worker-0", 0, curve(1, 2, 3, 4, value=2.0) + curve(1, name="accuracy"))
    reader = SeriesReader()
    answer = reader.read(tmp_path, [], [])
    assert (answer.names, answer.sources) == (["accuracy", "loss"], {"accuracy": ["file"], "loss": ["file"]})
    assert [(curve.name, curve.replica, curve.attempt) for curve in answer.series] == [
        ("accuracy", "worker-0", 0),
        ("loss", "master-0", 1),
    ]
    loss = answer.series[1]
    assert (loss.step, loss.value) == ([1, 2, 3, 4], [1, 1, 0.5, 0.5])
    assert [(curve.name, curve.max) for curve in answer.spread] == [("loss", [2, 2, 2, 2])]
    only = reader.read(tmp_path, ["loss"], ["worker-0", "worker-9"])
    assert [(curve.name, curve.replica) for curve in only.series] == [("loss", "worker-0")]
    assert only.names == ["accuracy", "loss"]


def test_a_file_that_grows_or_is_replaced_is_read_again(tmp_path: Path) -> None:
    path, reader = write(tmp_path, "worker-0", 0, curve(1)), SeriesReader()

    def steps() -> list[float]:
        return reader.read(tmp_path, [], []).series[0].step

    assert steps() == [1]
    with path.open("ab") as file:
        file.write(encode_points(curve(2))[:-5])  # a line that is being written
    assert steps() == [1]
    with path.open("ab") as file:
        file.write(encode_points(curve(2))[-5:])
    assert steps() == [1, 2]
    (tmp_path / "new").write_bytes(encode_points(curve(1, 5, 9)))
    (tmp_path / "new").replace(path)
    assert steps() == [1, 5, 9]
    path.unlink()
    assert reader.read(tmp_path, [], []).names == []


def test_an_answer_has_so_many_points_and_their_bounds(tmp_path: Path) -> None:
    points = [MetricPoint("loss", "file", n, n, 9.0 if n == 3333 else 1.0) for n in range(4096)]
    write(tmp_path, "worker-0", 0, points)
    loss = SeriesReader().read(tmp_path, [], []).series[0]
    assert len(loss.step) <= MAX_POINTS and max(loss.max) == 9.0
    assert len({len(column) for column in (loss.step, loss.time, loss.value, loss.min, loss.max)}) == 1


def test_values_that_are_not_finite_are_marked_in_a_curve(tmp_path: Path) -> None:
    values = [4.0, math.inf, 2.0, math.nan, -math.inf]
    write(tmp_path, "worker-0", 0, [MetricPoint("loss", "file", n, n, value) for n, value in enumerate(values)])
    write(tmp_path, "worker-1", 0, [MetricPoint("loss", "file", n, n, 3.0 if n < 3 else math.nan) for n in range(5)])
    answer = msgspec.json.decode(msgspec.json.encode(SeriesReader().read(tmp_path, ["loss"], [])))
    (loss,), (spread,) = answer["series"], answer["spread"]
    assert loss["value"] == loss["min"] == loss["max"] == [4, None, 2, None, None]
    assert (loss["notFinite"], loss["notFiniteSince"]) == ({"1": "inf", "3": "nan", "4": "-inf"}, 3)
    assert (spread["min"], spread["max"]) == ([3, 3, 2, None, None], [4, 3, 3, None, None])
    assert str(SeriesReader().last_values(tmp_path, {})["loss"]) == "-inf"


@pytest.mark.parametrize("last", [1.0, math.nan])
def test_of_many_points_those_that_are_not_finite_stay_marked(tmp_path: Path, last: float) -> None:
    """Also after they were thinned out and written again."""
    points = [MetricPoint("loss", "file", n, n, math.nan if n == 1001 else 1.0) for n in range(4095)]
    points = thin_out([*points, MetricPoint("loss", "file", 4095, 4095, last)], 1024)
    assert decode_points(encode_points(points))[250].not_finite == 1
    write(tmp_path, "worker-0", 0, points)
    loss = SeriesReader().read(tmp_path, [], [], 64).series[0]
    assert {text for index, text in loss.not_finite.items() if loss.step[index] < 4000} == {MIXED}
    assert (loss.min[0], loss.not_finite_since) == (1.0, None if last == 1.0 else 4095)


def test_the_last_values_are_those_of_the_last_attempt_of_the_leading_replica(tmp_path: Path) -> None:
    write(tmp_path, "worker-0", 1, [*curve(1, value=3.0), *curve(1, value=0.5, name="accuracy")])
    write(tmp_path, "master-0", 10, curve(5, 6, value=1.0))
    write(tmp_path, "master-0", 9, curve(1, 7, value=2.0))
    events = {"train/loss": curve(1, value=4.0), "loss": curve(1, value=5.0)}
    assert SeriesReader().last_values(tmp_path, events) == {"loss": 1.0, "accuracy": 0.5, "train/loss": 4.0}
    assert SeriesReader().last_values(tmp_path / "missing", {}) == {}
