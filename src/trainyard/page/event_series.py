"""The series in TensorBoard's event files of a job that runs, or ran, on this machine.

The files are those below `spec.tensorboard.logDir` of a TfJob, and below `runs` in the job's working directory. A
folder may have files of other jobs: values from before the job's creation, or long after its end, are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

import msgspec

from trainyard.app.history.recorded_job import job_object, job_written_at
from trainyard.app.history.records import HistoryRecord
from trainyard.objects import Json, as_dict, namespace_of
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.metric_points import CHIEF_POINTS, MetricPoint, thin_out
from trainyard.page.options import ClaimFolders
from trainyard.page.tfevents import EventFile

BUDGET = 8 << 20  # bytes of one reading, which a page asks for every 2 seconds
KEPT_SECONDS = 60.0  # what nobody has asked for is dropped from memory
MAX_FILES, MAX_SERIES, MAX_FOLDERS, MAX_DEPTH = 64, 256, 256, 3
GRACE = 60.0  # seconds; events are written late, and their clock may differ


def event_folders(job: Json, claims: ClaimFolders) -> list[Path]:
    """The folders on this machine that may have event files of the job."""
    spec, annotations = as_dict(job.get("spec")), as_dict(as_dict(job.get("metadata")).get("annotations"))
    working_directory = str(annotations.get(WORKING_DIRECTORY) or "")
    board = as_dict(spec.get("tensorboard") or spec.get("tensorBoard"))
    folders = [_on_this_machine(board, namespace_of(job), claims)] if board.get("logDir") else []
    if os.path.isabs(working_directory):
        folders.append(Path(working_directory, "runs"))
        if board.get("logDir") and not str(board["logDir"]).startswith("/"):
            folders.append(Path(working_directory, str(board["logDir"])))
    return [folder for folder in folders if folder is not None]


def _on_this_machine(board: Json, namespace: str, claims: ClaimFolders) -> Path | None:
    """The folder of an absolute logDir; None if no volume of the machine is mounted there."""
    path = PurePosixPath(str(board["logDir"]))
    volumes = {volume.get("name"): volume for volume in map(as_dict, board.get("volumes") or [])}
    mounts = [as_dict(mount) for mount in board.get("volumeMounts") or []]
    for mount in sorted(mounts, key=lambda mount: len(str(mount.get("mountPath"))), reverse=True):
        mount_path = str(mount.get("mountPath") or "")
        if not mount_path.startswith("/") or not path.is_relative_to(mount_path):
            continue
        volume = as_dict(volumes.get(mount.get("name")))
        if volume.get("hostPath"):
            folder: Path | None = Path(str(as_dict(volume["hostPath"]).get("path")))
        else:
            folder = claims.folder(namespace, str(as_dict(volume.get("persistentVolumeClaim")).get("claimName") or ""))
        parts = (str(mount.get("subPath") or ""), path.relative_to(mount_path))
        return folder.joinpath(*parts) if folder is not None and ".." not in path.parts else None
    return None


def event_files(folder: Path) -> Iterator[Path]:
    """The event files below a folder, the oldest of each folder first; symbolic links to folders are not followed."""
    for parent, folders, names in islice(os.walk(folder), MAX_FOLDERS):
        folders.sort()
        if len(Path(parent).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        yield from (Path(parent, name) for name in sorted(names) if ".tfevents." in name)


class _File:
    """An event file with what was read of it, by tag."""

    def __init__(self) -> None:
        self.reader = EventFile()
        self.series: dict[str, list[MetricPoint]] = {}

    def read(self, path: Path, run: str, source: str, budget: int) -> int:
        """Read what is new; returns the number of bytes."""
        scalars, read, is_new = self.reader.read(path, budget)
        if is_new:
            self.series = {}
        for scalar in scalars:
            name = f"{run}/{scalar.tag}" if run else scalar.tag
            if name in self.series or len(self.series) < MAX_SERIES:
                point = MetricPoint(name, source, scalar.time, float(scalar.step), scalar.value)
                self.series.setdefault(name, []).append(point)
        for name, points in self.series.items():
            if len(points) > 2 * CHIEF_POINTS:
                self.series[name] = thin_out(points, CHIEF_POINTS)
        return read


class EventSeries:
    """Reads the event files of one job, a part at each call."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}

    @property
    def corrupt(self) -> list[str]:
        """The files that cannot be read to their end."""
        return [str(path) for path, file in self._files.items() if file.reader.is_corrupt]

    def read(self, folders: list[Path], since: float, until: float | None) -> dict[str, list[MetricPoint]]:
        """The points by name, which begins with the folder of the run. `since`, `until`: the job's creation and end,
        Unix seconds. Reads files."""
        budget, series = BUDGET, dict[str, list[MetricPoint]]()
        files: dict[Path, _File] = {}
        for folder in folders:
            for path in event_files(folder):
                if len(files) == MAX_FILES:
                    break
                files[path] = file = self._files.get(path) or _File()
                run = "/".join(path.parent.relative_to(folder).parts)
                budget -= file.read(path, run, f"{folder.name}/{run}".rstrip("/"), max(0, budget))
                for name, points in file.series.items():
                    series.setdefault(name, []).extend(
                        point
                        for point in points
                        if since - GRACE <= point.time and (until is None or point.time <= until + GRACE)
                    )
        self._files = files
        return {name: points for name, points in series.items() if points}


class _Job(msgspec.Struct):
    """`folders`: of the job as it was written at `written_at`."""

    folders: list[Path] = []
    written_at: int | None = None
    series: EventSeries = msgspec.field(default_factory=EventSeries)
    asked_at: float = 0.0


class EventReader:
    """Reads the event files of jobs. What was read is kept while somebody looks. Used by one thread at a time."""

    def __init__(self, claims: ClaimFolders) -> None:
        self._claims = claims
        self._jobs: dict[str, _Job] = {}  # by uid

    def corrupt(self, job_uid: str) -> list[str]:
        """The event files of the job that cannot be read to their end, as far as `read` has read them."""
        return self._jobs[job_uid].series.corrupt if job_uid in self._jobs else []

    def read(self, job_uid: str, record: HistoryRecord) -> dict[str, list[MetricPoint]]:
        """The points of a job's event files by name, see EventSeries. Reads files."""
        now = time.monotonic()
        job = self._jobs.get(job_uid) or _Job()
        written_at = job_written_at(record)
        if job.written_at != written_at:  # a page may ask before the job is in its record
            job.folders = event_folders(job_object(record) or {"metadata": {}}, self._claims)
            job.written_at = written_at
        job.asked_at = now
        self._jobs = {uid: kept for uid, kept in self._jobs.items() if now - kept.asked_at < KEPT_SECONDS}
        self._jobs[job_uid] = job
        return job.series.read(job.folders, record.started, record.ended_at)
