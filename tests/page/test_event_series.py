"""Which event files belong to a job, and their series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.page.tfevents_writer import event, frame, simple
from trainyard.app.history.records import HistoryRecord
from trainyard.objects import Json
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.yaml_text import as_yaml
from trainyard.page import event_series
from trainyard.page.event_series import EventReader, EventSeries, event_folders
from trainyard.page.options import ClaimFolders
from trainyard.page.series import SeriesReader

CLAIMS = ClaimFolders(Path("/node/claims"), {"data": Path("/home/me/data")})
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "logs"}}


def job(working_directory: str = "", **board: Any) -> Json:
    annotations = {WORKING_DIRECTORY: working_directory} if working_directory else {}
    metadata = {"namespace": "team", "name": "a", "annotations": annotations}
    return {"metadata": metadata, "spec": {"tensorboard": board} if board else {}}


@pytest.mark.parametrize(
    ("job", "folders"),
    [
        (job(), []),
        (job("/w"), ["/w/runs"]),
        (job("/w", logDir="out"), ["/w/runs", "/w/out"]),
        (job("relative"), []),
        (job(logDir="/logs"), []),  # in a container alone
        (job(logDir="/logs/a", volumes=[CLAIM], volumeMounts=[{"name": "v", "mountPath": "/logs"}]),
         ["/node/claims/team/logs/a"]),
        (job(logDir="/logs", volumes=[CLAIM], volumeMounts=[{"name": "v", "mountPath": "/logs", "subPath": "s"}]),
         ["/node/claims/team/logs/s"]),
        (job(logDir="/logs", volumes=[CLAIM], volumeMounts=[{"name": "v", "mountPath": "/other"}]), []),
        (job(logDir="/logs/../x", volumes=[CLAIM], volumeMounts=[{"name": "v", "mountPath": "/logs"}]), []),
        (job(logDir="/l", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
             volumeMounts=[{"name": "v", "mountPath": "/l"}]), ["/home/me/data"]),
        (job(logDir="/l", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": ".."}}],
             volumeMounts=[{"name": "v", "mountPath": "/l"}]), []),
        (job(logDir="/l", volumes=[{"name": "v", "hostPath": {"path": "/h"}}],
             volumeMounts=[{"name": "v", "mountPath": "/l"}]), ["/h"]),
        (job(logDir="/l", volumes=None, volumeMounts=[None]), []),
    ],
)  # fmt: skip
def test_the_folders_of_a_job(job: Json, folders: list[str]) -> None:
    assert event_folders(job, CLAIMS) == [Path(folder) for folder in folders]


def write(path: Path, *steps: int, time: float = 100.0, tag: str = "loss") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(frame(event(step, time + step, simple(tag, 1 / (1 + step)))) for step in steps))


def test_series_have_the_name_of_their_run(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "events.out.tfevents.1.host", 1, 2, tag="lr")
    write(tmp_path / "runs" / "train" / "events.out.tfevents.1.host", 1, 2)
    write(tmp_path / "runs" / "train" / "events.out.tfevents.2.host", 2, 3)  # it went on at a checkpoint
    write(tmp_path / "runs" / "train" / "notes.txt", 1)
    events = EventSeries().read([tmp_path / "runs", tmp_path / "none"], 100.0, None)
    assert {name: [point.step for point in points] for name, points in events.items()} == {
        "lr": [1, 2],
        "train/loss": [1, 2, 2, 3],
    }
    answer = SeriesReader().read(tmp_path, [], [], events=events)
    assert (answer.names, answer.sources["train/loss"]) == (["lr", "train/loss"], ["runs/train"])
    assert [(curve.name, curve.replica, curve.step) for curve in answer.series] == [
        ("lr", "", [1, 2]),
        ("train/loss", "", [1, 2, 3]),
    ]


def test_values_of_an_earlier_job_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "events.out.tfevents.1.host", 1, time=100.0)
    write(tmp_path / "events.out.tfevents.2.host", 1, time=5000.0)
    read = EventSeries().read([tmp_path], 4900.0, 4990.0)
    assert [point.time for point in read["loss"]] == [5001.0]
    assert EventSeries().read([tmp_path], 9000.0, None) == {}


def test_large_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_series, "BUDGET", 2000)
    write(tmp_path / "events.out.tfevents.1.host", *range(100))
    write(tmp_path / "events.out.tfevents.2.host", *range(100, 200))
    series, lengths = EventSeries(), []
    for _ in range(20):
        lengths.append(len(series.read([tmp_path], 100.0, None).get("loss", [])))
    assert lengths[0] < 60 and lengths[-1] == 200 and lengths == sorted(lengths)


def test_a_file_that_cannot_be_read_to_its_end_is_named(tmp_path: Path) -> None:
    series = EventSeries()
    write(tmp_path / "events.out.tfevents.1", 1, 2)
    write(damaged := tmp_path / "run" / "events.out.tfevents.2", 1, 2)
    with damaged.open("ab") as file:
        file.write(b"\xff" * 40)
    assert series.corrupt == []
    assert len(series.read([tmp_path], 0.0, None)["run/loss"]) == 2
    assert series.corrupt == [str(damaged)]


def test_curves_are_read_although_somebody_looked_before_the_job_was_recorded(tmp_path: Path) -> None:
    """A page that is open when the job is made asks every 2 seconds from then on."""
    record = HistoryRecord(tmp_path / "record", {"created": "1970-01-01T00:01:00Z"})
    record.folder.mkdir()
    write(tmp_path / "work" / "runs" / "events.out.tfevents.1", 1, 2)
    reader = EventReader(ClaimFolders())
    assert reader.read("uid", record) == {}
    (record.folder / "job.yaml").write_text(as_yaml({"apiVersion": "v1", "kind": "A", **job(str(tmp_path / "work"))}))
    assert [point.step for point in reader.read("uid", record)["loss"]] == [1, 2]
