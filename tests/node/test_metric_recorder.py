"""The values that programs report are kept beside their logs: all of them while they are few, merged ones later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.node.kubelet.usage import metric_recorder
from trainyard.node.kubelet.usage.metric_recorder import MetricRecorder
from trainyard.node.kubelet.usage.progress import METRICS_FILE
from trainyard.node.kubelet.usage.progress_sampler import ProgressFiles, ProgressSampler
from trainyard.objects.metric_points import METRICS, MetricPoint, decode_points, encode_points, thin_out


def points(first: int, last: int, name: str = "loss") -> list[MetricPoint]:
    return [MetricPoint(name, "file", float(n), float(n), 1.0 / (n + 1)) for n in range(first, last)]


def recorded(folder: Path) -> list[MetricPoint]:
    return decode_points((folder / METRICS).read_bytes())


def test_every_value_is_kept_in_order(tmp_path: Path) -> None:
    recorder = MetricRecorder(tmp_path, 100)
    recorder.add(points(0, 3))
    recorder.add(points(3, 5))
    assert recorded(tmp_path) == points(0, 5)
    assert (tmp_path / METRICS).stat().st_mode & 0o777 == 0o600


def test_a_long_series_stays_short_and_even(tmp_path: Path) -> None:
    """10,000 values in pieces, and a second series of few values, of which none is merged."""
    recorder = MetricRecorder(tmp_path, 256)
    for first in range(0, 10_000, 10):
        recorder.add(points(first, first + 10))
        assert len([point for point in recorded(tmp_path) if point.name == "loss"]) <= 256
    recorder.add(points(0, 7, "accuracy"))
    kept = [point for point in recorded(tmp_path) if point.name == "loss"]
    assert sum(point.count for point in kept) == 10_000
    assert len(kept) >= 64 and max(point.count for point in kept) <= 128
    assert (kept[0].bounds[1], kept[-1].value, kept[-1].step) == (1.0, 1 / 10_000, 9999.0)
    assert [point for point in recorded(tmp_path) if point.name == "accuracy"] == points(0, 7, "accuracy")
    assert [path.name for path in tmp_path.iterdir()] == [METRICS]


def test_a_line_that_was_cut_off_is_skipped_and_ended(tmp_path: Path) -> None:
    """A process was killed while it wrote: the next one goes on in a line of its own."""
    MetricRecorder(tmp_path, 100).add(points(0, 3))
    whole = (tmp_path / METRICS).read_bytes()
    (tmp_path / METRICS).write_bytes(whole[:-9])
    MetricRecorder(tmp_path, 100).add(points(3, 4))
    assert recorded(tmp_path) == [*points(0, 2), *points(3, 4)]


def test_what_an_earlier_process_has_written_counts(tmp_path: Path) -> None:
    MetricRecorder(tmp_path, 10).add(points(0, 10))
    MetricRecorder(tmp_path, 10).add(points(10, 12))
    assert len(recorded(tmp_path)) <= 10 and sum(point.count for point in recorded(tmp_path)) == 12


def test_invented_names_have_an_end(tmp_path: Path) -> None:
    recorder = MetricRecorder(tmp_path, 10)
    recorder.add([point for n in range(100) for point in points(0, 1, f"loss_{n}")])
    recorder.add(points(1, 2, "loss_0"))
    assert len({point.name for point in recorded(tmp_path)}) == metric_recorder.MAX_SERIES
    assert recorded(tmp_path)[-1].name == "loss_0"


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / METRICS).symlink_to(tmp_path / "other")
    MetricRecorder(tmp_path, 10).add(points(0, 1))
    assert (tmp_path / "other").read_text() == "mine"


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    recorder = MetricRecorder(tmp_path / "logs", 10)
    recorder.add(points(0, 1))
    (tmp_path / "logs").mkdir()
    recorder.add(points(1, 2))
    assert recorded(tmp_path / "logs") == points(1, 2)


values = st.builds(
    MetricPoint,
    st.just("loss"),
    st.just("file"),
    st.floats(0, 1e9),
    st.none() | st.floats(0, 1e6),
    st.floats(-1e6, 1e6),
)


@given(st.lists(values, max_size=200), st.integers(1, 50))
def test_merging_loses_neither_bounds_nor_the_last_value(series: list[MetricPoint], limit: int) -> None:
    thin = thin_out(series, limit)
    assert len(thin) <= limit
    assert sum(point.count for point in thin) == len(series)
    if series:
        assert thin[-1].value == series[-1].value and thin[-1].time == series[-1].time
        assert min(point.bounds[0] for point in thin) == min(point.value for point in series)
        assert max(point.bounds[1] for point in thin) == max(point.value for point in series)
    assert decode_points(encode_points(thin)) == thin


@given(st.binary(max_size=500))
def test_no_bytes_are_an_error(text: bytes) -> None:
    assert all(isinstance(point, MetricPoint) for point in decode_points(text))


@pytest.mark.parametrize("source", ["file", "output", "pattern"])
async def test_what_a_program_reports_before_its_end_is_recorded(tmp_path: Path, source: str) -> None:
    """The last values come between two passes, and the pod's folder is removed at once."""
    folder, kept = tmp_path / "tmp", tmp_path / "kept"
    log = kept / "main" / "1.log"
    folder.mkdir()
    log.parent.mkdir(parents=True)
    log.touch()
    sampler = ProgressSampler(lambda: 5.0, lambda: 1000.0)
    sampler.container_starts("u/main/1", ProgressFiles(folder, log, recorder=MetricRecorder(kept, 100)))
    sampler.read_all()()
    assert not (kept / METRICS).exists()
    line = "step: 3 loss: 0.5\n" if source == "pattern" else '{"step": 3, "loss": 0.5}\n'
    (folder / METRICS_FILE if source == "file" else log).write_text(line)
    sampler.container_ended("u/main/1")
    (folder / METRICS_FILE).unlink(missing_ok=True)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert recorded(kept) == [MetricPoint("loss", source, 1000.0, 3.0, 0.5)]
