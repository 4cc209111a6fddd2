"""The step, the loss and its shape in the list of jobs."""

from __future__ import annotations

import math
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.page.test_series import curve, write
from trainyard.page.job_list import JobList
from trainyard.page.job_progress import (
    KEPT_LOSSES,
    PROGRESS_COLUMNS,
    SHAPE_POINTS,
    Progress,
    ProgressReader,
    current_loss,
    loss_name,
    merged,
    recorded_progress,
    shape_of,
)
from trainyard.views.usage_view import ReplicaUsage


def usage(replica: str, **metrics: float) -> ReplicaUsage:
    return ReplicaUsage(replica, replica.rpartition("-")[0], "Running", "p", "n", metrics=metrics)


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["step", "accuracy"], None),
        (["val_loss", "loss"], "loss"),
        (["val_loss", "train_loss"], "train_loss"),
        (["val/Loss", "eval_loss"], "eval_loss"),
        (["lossy"], None),
    ],
)
def test_the_name_of_the_loss(names: list[str], name: str | None) -> None:
    assert loss_name(names) == name


def test_the_loss_is_that_of_the_leading_replica_that_has_one() -> None:
    usages = [usage("worker-1", loss=9.0), usage("worker-0", loss=3.0), usage("master-0", step=4.0)]
    assert current_loss(usages) == 3.0
    assert current_loss([*usages, usage("chief-0", loss=1.0)]) == 1.0
    assert current_loss(usages[2:]) is None


def test_a_shape_has_the_lowest_and_the_highest_part() -> None:
    assert shape_of([]) == shape_of([1.0]) == ""
    assert shape_of([2.0, 1.0, 0.0]) == "zi0"
    assert shape_of([5.0, 5.0]) == "hh"
    assert shape_of([math.inf, 1.0, math.nan, 0.0]) == "!z!0"
    assert shape_of([math.nan, math.inf]) == "!!"
    assert shape_of([2.0, *[1.0] * 40, math.nan])[-1] == "!"
    assert shape_of([1 / (1 + step) for step in range(1000)])[0] == "z"


@given(st.lists(st.floats(allow_nan=True), max_size=300))
@example([2e306, -1.8e308])
@example([1.7e308] * 200)
@example([0.0, 5e-324])
def test_a_shape_is_short_whatever_the_values(losses: list[float]) -> None:
    shape = shape_of(merged(tuple(losses)))
    assert len(shape) <= SHAPE_POINTS and shape == shape.lower()


def test_a_loss_that_is_not_finite_is_never_replaced_by_an_older_one(tmp_path: Path) -> None:
    assert str(current_loss([usage("master-0", loss=math.nan), usage("worker-0", loss=0.5)])) == "nan"
    write(tmp_path, "master-0", 1, [*curve(1, 2, value=0.5), *curve(3, 4, value=math.nan)])
    progress = recorded_progress(tmp_path)
    assert (progress.step, str(progress.loss), shape_of(progress.losses)) == (4, "nan", "hh!!")


def test_a_loss_that_stays_nan_is_one_point_for_each_step(tmp_path: Path) -> None:
    """nan is not equal to itself: a row that does not change would be sent again every 2 seconds."""
    reader = ProgressReader(None, None, JobList(None, None), None)
    rows = []
    for step in (1.0, 2.0, 2.0, 2.0):
        reader._measured("u", Progress(step, float("nan")))
        rows.append(reader._jobs["u"].row)
    assert rows[1] is rows[3] == ["u", 2.0, "nan", "!!", ""]
    assert len(reader._jobs["u"].progress.losses) == 2


def test_the_record_has_the_last_values_of_the_leading_replica(tmp_path: Path) -> None:
    assert recorded_progress(tmp_path / "gone") == Progress()
    write(tmp_path, "worker-0", 1, curve(*range(9), value=7.0))
    (tmp_path / "chief-0").mkdir()
    assert recorded_progress(tmp_path).step == 8
    write(tmp_path, "master-0", 10, curve(3, 4, value=0.25))
    write(tmp_path, "master-0", 9, curve(1, 2, 3, value=0.5))
    write(tmp_path, "master-0", 10, curve(4, name="accuracy"))
    assert recorded_progress(tmp_path) == Progress(4, 0.25, (0.5, 0.5, 0.25, 0.25))


def test_of_a_long_record_neighbours_are_merged(tmp_path: Path) -> None:
    write(tmp_path, "worker-0", 1, curve(*range(4000)))
    progress = recorded_progress(tmp_path)
    assert progress.step == 3999 and 60 < len(progress.losses) < KEPT_LOSSES


def test_values_without_a_step_have_a_loss_alone(tmp_path: Path) -> None:
    write(tmp_path, "worker-0", 1, curve(None, None, value=0.5))
    assert recorded_progress(tmp_path) == Progress(None, 0.5, (0.5, 0.5))


def test_the_progress_of_many_jobs_is_small() -> None:
    """W11: of the 200 that a history keeps and of 1,000 that run."""
    rows = [[str(uuid4()), 14_201.0, 0.4123, "z" * SHAPE_POINTS, ""] for _ in range(1200)]
    assert len(rows[0]) == len(PROGRESS_COLUMNS)
    size = len(msgspec.json.encode(rows))
    print(f"W11: {size:,} bytes of the progress of 1,200 jobs")
    assert size <= 100_000
