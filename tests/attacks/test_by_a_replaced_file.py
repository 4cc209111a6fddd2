"""Attacks by a program of the network *shared*, which may put a FIFO or a link in the place of any file that is read
later: of its log, its metrics, its event files, the record of its job. Whoever reads it ends, and gets nothing of the
file behind the link.

docs/security.md lists them with what makes them impossible."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.test_history_export import FAILED, failed_pod, recorded
from tests.page.tfevents_writer import event, frame, simple
from tests.views.why_values import NOW, tfjob
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.recorded_job import events_of, facts_of, job_object
from trainyard.app.history.recorded_logs import log_files
from trainyard.app.history.recorded_values import recorded_usages
from trainyard.app.history.records import RECORDING, RESULT, HistoryRecord, is_recorded, read_record, write_file
from trainyard.app.history.retention import mark_interrupted, prune
from trainyard.app.job_files import read_bytes
from trainyard.cli.export.history_export import exported_log, exported_run
from trainyard.cli.export.page import export_page
from trainyard.cli.output.record_lines import record_lines
from trainyard.cli.session.history_logs import print_recorded_logs
from trainyard.cli.session.job_watch import LogSelection
from trainyard.objects import Json
from trainyard.objects.metric_points import METRICS, MetricPoint, encode_points
from trainyard.page.event_series import EventSeries
from trainyard.page.job_list import recorded_row
from trainyard.page.job_progress import recorded_progress
from trainyard.page.log_ranges import read_range, recorded_files, whole_log
from trainyard.page.series import SeriesReader
from trainyard.views.recorded import pod_log_folder

T = TypeVar("T")
SECRET = "the key of the user"
SECONDS = 20.0


def ended(read: Callable[[], T]) -> T:
    """What `read` returns; a failure if it does not end: it waits for the other end of a FIFO."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(read()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "the reader waits for a FIFO"
    assert results, "the reader has raised an exception"
    return results[0]


def a_fifo(path: Path, secret: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def a_device(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def a_link_to_its_folder(path: Path, secret: Path) -> None:
    """The folder of the file is a link to one in which a file of the same name has the secret."""
    folder = path.parent.rename(path.parent.with_name("moved"))
    (folder / path.name).write_bytes(secret.read_bytes())
    moved = folder.rename(secret.parent / "elsewhere")
    path.parent.symlink_to(moved)


Replace = Callable[[Path, Path], None]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "id_key"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture
def pod() -> Json:
    return failed_pod()


@pytest.fixture
def record(tmp_path: Path, pod: Json) -> HistoryRecord:
    return recorded(tmp_path / "trainyard" / "history", tfjob(FAILED), pod)


# The log.

LOG_REPLACEMENTS = [a_fifo, a_link, a_device, a_link_to_its_folder]


def range_of(record: HistoryRecord, name: str) -> Any:
    async def read() -> Any:
        return await read_range(None, record, [], name, 0, 1 << 20)

    return asyncio.run(read())


def download_of(record: HistoryRecord, name: str) -> bytes:
    async def read() -> bytes:
        chunks: Any = await whole_log(None, record, [], name)
        if chunks is None:
            return b""
        async with aclosing(chunks):
            return b"".join([chunk async for chunk in chunks])

    return asyncio.run(read())


@pytest.mark.parametrize("replace", LOG_REPLACEMENTS)
def test_a_replaced_log_is_no_way_out(
    replace: Replace,
    record: HistoryRecord,
    secret: Path,
    pod: Json,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`why`, the exported page, its log part, `logs`, `history`, the ranges, downloads and lists of the page."""
    [log], [listed] = log_files(record), recorded_files(record)
    replace(log.path, secret)
    monkeypatch.setenv("XDG_STATE_HOME", str(record.folder.parents[2]))
    ways = {
        "why": lambda: repr(facts_of(record)),
        "export": lambda: export_page(exported_run(record, NOW)),
        "log of the export": lambda: repr(exported_log(log, 1 << 16, str)),
        "history": lambda: "\n".join(record_lines(record, NOW, 100)),
        "logs": lambda: str(print_recorded_logs(record.id, "", LogSelection(), None)),
        "range": lambda: repr(range_of(record, listed.file)),
        "download": lambda: repr(download_of(record, listed.file)),
        "list": lambda: repr(recorded_files(record)),
    }
    texts = {way: ended(read) for way, read in ways.items()}
    texts["terminal"] = "".join(capfd.readouterr())
    assert [way for way, text in texts.items() if SECRET in text] == []
    assert range_of(record, listed.file) is None


def test_a_log_that_is_replaced_after_it_was_listed_is_not_opened(record: HistoryRecord, secret: Path) -> None:
    """Between the list and the open there is time."""
    [log] = log_files(record)
    a_fifo(log.path, secret)
    assert ended(lambda: exported_log(log, 1 << 16, str)).first == ["1.log: not a regular file"]


def test_limits_and_marks_of_the_history_pass_by_a_replaced_log(record: HistoryRecord, secret: Path) -> None:
    [log] = log_files(record)
    a_fifo(log.path, secret)
    (record.folder / RECORDING).write_text("a process that is gone\n")
    write_file(record.folder / RESULT, '{"uid": "u", "result": ""}')
    root = record.folder.parent
    assert ended(lambda: [mark_interrupted(root), prune(root, RetentionLimits(log_size=1), NOW)])
    again = read_record(record.folder)
    assert again is not None and again.result == "Interrupted"


# The files of the record.


@pytest.mark.parametrize("replace", [a_fifo, a_link, a_device])
@pytest.mark.parametrize("name", ["job.yaml", "events.yaml", "manifest.yaml", RESULT])
def test_a_replaced_file_of_a_record_is_as_one_that_is_missing(
    name: str, replace: Replace, record: HistoryRecord, secret: Path
) -> None:
    replace(record.folder / name, secret)
    read = ended(lambda: [read_record(record.folder), job_object(record), events_of(record), facts_of(record)])
    if name != RESULT:
        assert read[0] is not None and ended(lambda: recorded_row(record))
        assert SECRET not in ended(lambda: export_page(exported_run(record, NOW)))
    else:
        assert read[0] is None
    assert SECRET not in repr(read)


@pytest.mark.parametrize("replace", [a_fifo, a_link, a_device])
def test_a_replaced_mark_of_its_recorder_is_none(replace: Replace, record: HistoryRecord, secret: Path) -> None:
    (record.folder / RECORDING).write_text("\n")
    replace(record.folder / RECORDING, secret)
    assert ended(lambda: [is_recorded(record.folder)]) == [False]


def test_the_recorder_writes_past_a_fifo_in_its_way(record: HistoryRecord) -> None:
    """At the name under which a file is written before it is renamed."""
    os.mkfifo(record.folder / f".{RESULT}.new")
    ended(lambda: [write_file(record.folder / RESULT, "{}")])
    assert (record.folder / RESULT).read_text() == "{}"


def test_a_link_in_the_place_of_a_record_is_no_record(record: HistoryRecord, tmp_path: Path) -> None:
    from trainyard.app.history.records import read_records

    root = record.folder.parent
    moved = record.folder.rename(tmp_path / "moved")
    (root / moved.with_name(record.folder.name).name).symlink_to(moved)
    assert read_records(root) == []


def test_a_file_without_a_limit_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="has more than"):
        read_bytes(path, tmp_path)


# What programs report.


@pytest.mark.parametrize("replace", LOG_REPLACEMENTS)
def test_replaced_metrics_are_none(replace: Replace, record: HistoryRecord, secret: Path, pod: Json) -> None:
    path = record.logs / pod_log_folder(pod) / METRICS
    points = encode_points([MetricPoint("loss", "file", NOW, 1.0, 0.5)])
    path.write_bytes(points)
    assert SeriesReader().last_values(record.logs, {}) == {"loss": 0.5}
    secret.write_bytes(points)
    replace(path, secret)
    assert ended(lambda: [SeriesReader().last_values(record.logs, {})]) == [{}]
    assert ended(lambda: [recorded_progress(record.logs).loss]) == [None]
    assert ended(lambda: [recorded_usages(record, [pod])]) == [[]]


@pytest.mark.parametrize("replace", [a_fifo, a_link, a_device])
def test_replaced_event_files_are_none(replace: Replace, tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "runs" / "events.out.tfevents.1.host"
    path.parent.mkdir()
    path.write_bytes(frame(event(1, NOW, simple("loss", 0.5))))
    assert list(EventSeries().read([path.parent], NOW, None)) == ["loss"]
    secret.write_bytes(path.read_bytes())
    replace(path, secret)
    assert ended(lambda: [EventSeries().read([path.parent], NOW, None)]) == [{}]
