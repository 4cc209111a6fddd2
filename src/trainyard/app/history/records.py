"""The history: the records of all jobs that ran on this machine, kept after their end, `down` and their deletion.

$XDG_STATE_HOME/trainyard/history (or ~/.local/state/...), mode 0700, has one folder per job,
`<time>-<namespace>-<job>-<id>`; the id is the first 8 characters of the job's uid:

    manifest.yaml   the job as it was submitted
    job.yaml        the job as it was last seen
    events.yaml     events about the job and its pods, one per line
    result.json     the outcome: result, times, restarts, how each pod ended (`HistoryRecord`)
    logs/<role>-<index>/attempt-<n>-<pod id>/<container>/<run>.log
    logs/<role>-<index>/attempt-<n>-<pod id>/metrics.jsonl  what its programs have reported (objects/metric_points.py)
    recording       exists while a process records the job: the name of that process's lock file
    kept            exists when the user wants to keep the record whatever the limits

Rules:
- A file is written under another name and renamed, so a reader never sees half of it. Nothing is synced to the disk.
- A process that records holds a lock on a file in `.recorders` as long as it lives. A record without a result whose
  process has ended is "Interrupted"; it is never removed for that.
- retention.py removes records to keep the history small.
- The folders are the only index. A list of jobs reads each result.json, but decodes no pods: 200 jobs of 1,000 pods
  take 0.2 s.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from trainyard.app.background.cluster_folders import HISTORY, state_folder
from trainyard.app.background.folder import is_locked, make_private
from trainyard.app.history.readable import EVENT, POD, RESULT_FIELDS, readable, readable_items
from trainyard.app.job_files import is_folder, matching_files, read_bytes, status_of
from trainyard.objects import Json, format_time, parse_time
from trainyard.objects.printable import quoted_path
from trainyard.views.recorded import ID_LENGTH

RESULT, RECORDING, LOGS, KEPT = "result.json", "recording", "logs", "kept"
INTERRUPTED = "Interrupted"
GIVEN_UP = "given up"  # begins the message of a job that was interrupted because it could not run here
RECORDERS = ".recorders"
MAX_LOCK_NAME = 4096  # bytes
_NAME_LENGTH = 60  # characters of a namespace or a job's name in the name of a folder


def history_folder() -> Path:
    """The folder of the history of this user. Raises BackgroundError when there is no home folder."""
    return state_folder() / HISTORY


def folder_name(uid: str, namespace: str, name: str, created: float) -> str:
    """The name of a job's folder. `created`: seconds since the epoch."""
    timestamp = datetime.fromtimestamp(created, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{timestamp}-{namespace[:_NAME_LENGTH]}-{name[:_NAME_LENGTH]}-{uid[:ID_LENGTH]}"


def write_file(path: Path, text: str) -> None:
    """Replace a file atomically; mode 0600. Its folder must exist. Raises OSError."""
    new_file = path.with_name(f".{path.name}.new")
    new_file.unlink(missing_ok=True)  # a program could have put a FIFO there, whose open would block
    try:
        descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        new_file.unlink(missing_ok=True)  # on a full disk even a partial file takes space
        raise
    new_file.replace(path)


# Reading.


class HistoryRecord(msgspec.Struct, frozen=True):
    """One job of the history: its folder, and the content of its result.json. `data`: all of it but `pods`, which are
    decoded when they are asked for."""

    folder: Path
    data: Json
    encoded_pods: bytes = b"[]"  # as in the file

    def text(self, key: str) -> str:
        """The field of result.json as text; "" when it is missing or null."""
        return str(self.data.get(key) or "")

    @property
    def id(self) -> str:
        """The last part of the folder's name, by which commands find the record."""
        return self.folder.name.rpartition("-")[2]

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.text("name")

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self.text("namespace")

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return self.text("kind")

    @property
    def result(self) -> str:
        """Succeeded, Failed, Interrupted or Deleted; "" while the job has not ended."""
        return self.text("result")

    @property
    def logs(self) -> Path:
        """The folder of the logs: in the job's folder, or in the one that --logs-dir named."""
        return Path(self.text("logs") or self.folder / LOGS)

    @property
    def pods(self) -> list[Json]:
        """How each pod ended, oldest first; [] when that cannot be read."""
        with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return readable_items(msgspec.json.decode(self.encoded_pods, type=list[Any]), POD)
        return []

    @property
    def replicas(self) -> int:
        """The number of replicas that had a pod."""
        count = self.data.get("replicas")  # records of earlier versions have no such field
        return count if count is not None else len({str(pod.get("replica")) for pod in self.pods})

    @property
    def content(self) -> Json:
        """The content of result.json."""
        return {**self.data, "pods": self.pods}

    @property
    def is_kept(self) -> bool:
        """Whether the user keeps the record whatever the limits of the history."""
        return (self.folder / KEPT).exists()

    @property
    def started(self) -> float:
        """When the job was created, in Unix seconds; 0.0 when unknown."""
        return parse_time(self.data.get("created")) or 0.0

    @property
    def ended_at(self) -> float | None:
        """When the job ended, in Unix seconds; None while it runs."""
        return parse_time(self.data.get("ended"))

    @property
    def last_seen(self) -> tuple[float, float]:
        """Sort key (end, start), seconds since the epoch: the end is the deletion, else the end of the job, else
        infinity."""
        return parse_time(self.data.get("deleted")) or self.ended_at or math.inf, self.started

    def log_files(self) -> list[Path]:
        """The log files, sorted by replica, attempt, container and run."""
        paths = matching_files(self.logs, "*/*/*/*.log")
        return sorted(paths, key=lambda path: [_natural(part) for part in path.parts[-4:]])

    def events(self) -> list[Json]:
        """The recorded events, oldest first; [] when none were recorded."""
        return read_events(self.folder / "events.yaml")


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key that puts worker-2 before worker-10."""
    return [
        (int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", text.removesuffix(".log"))
    ]


def read_events(path: Path) -> list[Json]:
    """The events in an events.yaml: each line is an item of a YAML list, written as JSON. A line that cannot be read is
    left out."""
    events = []
    with contextlib.suppress(OSError):
        for line in read_bytes(path, path.parent).split(b"\n"):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                events.append(msgspec.json.decode(line.removeprefix(b"- ")))
    return readable_items(events, EVENT)


def events_text(events: list[Json]) -> str:
    """Events as a YAML list with one JSON object per line."""
    return "".join(f"- {json.dumps(event, ensure_ascii=False)}\n" for event in events)


def read_records(root: Path) -> list[HistoryRecord]:
    """The records of all jobs of the history, newest first."""
    readable = [record for folder in job_folders(root) if (record := read_record(folder))]
    return sorted(readable, key=lambda record: (record.started, record.folder.name), reverse=True)


_RESULT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_record(folder: Path) -> HistoryRecord | None:
    """None when the record cannot be read. A record without a result that no process records any more is
    Interrupted."""
    try:
        fields = _RESULT_DECODER.decode(read_bytes(folder / RESULT, folder))
        pods = bytes(fields.pop("pods", b"[]"))
        decoded = {name: msgspec.json.decode(value) for name, value in fields.items()}
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    data = readable(decoded, RESULT_FIELDS)
    if not data.get("result") and not is_recorded(folder):
        data = as_interrupted(data, folder)
    return HistoryRecord(folder, data, pods)


def as_interrupted(data: Json, folder: Path) -> Json:
    """The content of result.json for a job whose process was killed: its end is the time of the last write to its
    files."""
    write_times = []
    for path in (folder / RESULT, *matching_files(folder, f"{LOGS}/*/*/*/*.log")):
        with contextlib.suppress(OSError):
            write_times.append(status_of(path, folder).st_mtime)
    message = data.get("message") or "its result is unknown: the process that ran it was killed, or its disk was full"
    return {**data, "result": INTERRUPTED, "ended": format_time(max(write_times, default=0.0)), "message": message}


def job_folders(root: Path) -> list[Path]:
    """The folders of all jobs, oldest first. A link in the place of a folder is none."""
    with contextlib.suppress(OSError):
        return sorted(path for path in root.iterdir() if not path.name.startswith(".") and is_folder(path))
    return []


# Locks of the recording processes.


class RecorderLock:
    """The lock file of a recording process, locked until `close` or the end of the process. Raises OSError."""

    def __init__(self, root: Path) -> None:
        folder = root / RECORDERS
        make_private(root)
        make_private(folder)
        self.name = f"{os.getpid()}-{time.time_ns():x}"
        self._path = folder / self.name
        unpublished = folder / f".{self.name}"  # locked before it is renamed to the name that other processes test
        self._file = os.open(unpublished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unpublished.rename(self._path)

    def close(self) -> None:
        """Remove the lock file and release the lock."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_recorded(folder: Path) -> bool:
    """Whether a live process writes into this job's folder."""
    try:
        name = read_bytes(folder / RECORDING, folder, MAX_LOCK_NAME).decode("utf-8", "replace").strip()
    except OSError:
        return False
    return bool(name) and is_held(folder.parent / RECORDERS / name)


def is_held(path: Path) -> bool:
    """Whether a process holds a lock on this file; False when the file does not exist."""
    try:
        return is_locked(path)
    except OSError:
        return False


def with_tilde(path: Path) -> str:
    """The path as text, with ~ for the home folder. A path with spaces is quoted, and whole: a shell expands no quoted
    ~."""
    if (quoted := quoted_path(path)) != str(path):
        return quoted
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def find_records(root: Path, text: str, namespace: str = "") -> list[HistoryRecord]:
    """The records of the jobs with that name (NAME, KIND/NAME) or id, newest first. An id names one job, whatever its
    namespace."""
    kind, _, name = text.rpartition("/")
    kind = kind.lower()
    all_records = read_records(root)
    if not kind and (by_id := [record for record in all_records if record.id == name]):
        return by_id
    return [
        record
        for record in all_records
        if record.name == name
        and (not namespace or record.namespace == namespace)
        and (not kind or kind in _names_of_kind(record))
    ]


def _names_of_kind(record: HistoryRecord) -> tuple[str, ...]:
    """The names by which kubectl accepts a kind, in lower case: singular and plural, without and with the API group."""
    kind = record.kind.lower()
    group = record.text("apiVersion").partition("/")[0]
    return (kind, f"{kind}s", f"{kind}.{group}", f"{kind}s.{group}")


def summary(record: HistoryRecord) -> dict[str, Any]:
    """A record as one JSON object, for `-o json`."""
    places = {"folder": str(record.folder), "logs": str(record.logs)}
    return {"id": record.id, **record.content, **places, "kept": record.is_kept}
