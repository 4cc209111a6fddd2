"""The history: what is kept of every job that ran on this machine, after its end, after `down`, after its deletion.

$XDG_STATE_HOME/trainyard/history (or ~/.local/state/...), for this user alone, has one folder per job,
`<time>-<namespace>-<job>-<id>`; the id is the beginning of the job's uid:

    manifest.yaml   the job as it was submitted
    job.yaml        the job as it was last seen
    events.yaml     events about the job and its pods, one per line
    result.json     what became of it: result, times, restarts, how each pod ended (`Record`)
    logs/<role>-<index>/attempt-<n>-<pod id>/<container>/<run>.log
    recording       there while a process records the job: the name of that process's lock file

Rules:
- A file is written beside its place and renamed, so a reader never sees half of it. Nothing is synced to the disk.
- A process that records holds a lock on a file in `.recorders` as long as it lives. A record whose process is gone
  without a result is "Interrupted"; it is never removed for that.
- What is removed to keep the history small: retention.py.
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

from trainyard.app.background import HISTORY, state_folder
from trainyard.app.folder import private
from trainyard.objects import Json, format_time, labels_of, name_of, parse_time, uid_of
from trainyard.objects.labels import ATTEMPT, INDEX, ROLE

RESULT, RECORDING, LOGS = "result.json", "recording", "logs"
INTERRUPTED = "Interrupted"
ID_LENGTH = 8
_POD_INDEX = "apps.kubernetes.io/pod-index"  # a StatefulSet's pods share their labels but for this one
RECORDERS = ".recorders"
_NAME_LENGTH = 60  # characters of a namespace or a job's name in the name of a folder


def history_folder() -> Path:
    """Where the history of this user is. Raises BackgroundError when there is no home folder."""
    return state_folder() / HISTORY


def replica_name(pod: Json) -> str:
    """`role-index`, as the CLI calls a replica; the pod's name where it is none (TensorBoard)."""
    labels = labels_of(pod)
    role, index = str(labels.get(ROLE) or "").lower(), index_of(pod)
    return f"{role}-{index}" if role and index else str(labels.get("app") or name_of(pod))


def index_of(pod: Json) -> str:
    """The number of a replica within its role; "" for a pod that is none."""
    labels = labels_of(pod)
    return str(labels.get(_POD_INDEX) or labels.get(INDEX) or "")


def attempt_of(pod: Json) -> int:
    text = str(labels_of(pod).get(ATTEMPT) or "0")
    return int(text) if text.isdecimal() else 0


def pod_logs(pod: Json) -> str:
    """The folder of a pod's logs within those of its job."""
    return f"{replica_name(pod)}/attempt-{attempt_of(pod)}-{uid_of(pod)[:ID_LENGTH]}"


def folder_name(uid: str, namespace: str, name: str, created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{namespace[:_NAME_LENGTH]}-{name[:_NAME_LENGTH]}-{uid[:ID_LENGTH]}"


def write_file(path: Path, text: str) -> None:
    """Replace a file as a whole. Its folder must be there."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
    except OSError:
        beside.unlink(missing_ok=True)  # on a full disk even half a file is in the way
        raise
    beside.replace(path)


# Reading.


class Record(msgspec.Struct, frozen=True):
    """One job of the history: the folder, and what its result.json holds."""

    folder: Path
    data: Json

    def text(self, key: str) -> str:
        return str(self.data.get(key) or "")

    @property
    def id(self) -> str:
        return self.folder.name.rpartition("-")[2]

    @property
    def name(self) -> str:
        return self.text("name")

    @property
    def namespace(self) -> str:
        return self.text("namespace")

    @property
    def kind(self) -> str:
        return self.text("kind")

    @property
    def result(self) -> str:
        """Succeeded, Failed, Interrupted or Deleted; "" while the job goes on."""
        return self.text("result")

    @property
    def logs(self) -> Path:
        """Where the logs are: in the folder, or where --logs-dir said."""
        return Path(self.text("logs") or self.folder / LOGS)

    @property
    def pods(self) -> list[Json]:
        """How each pod ended, oldest first."""
        return [pod for pod in self.data.get("pods") or [] if isinstance(pod, dict)]

    @property
    def started(self) -> float:
        return parse_time(self.data.get("created")) or 0.0

    @property
    def ended(self) -> float | None:
        return parse_time(self.data.get("ended"))

    @property
    def last_seen(self) -> tuple[float, float]:
        """Orders jobs by when they were last there: until their deletion, else their end; one that goes on is later."""
        return parse_time(self.data.get("deleted")) or self.ended or math.inf, self.started

    def files(self) -> list[Path]:
        """The log files, by replica, attempt, container and run."""
        return sorted(self.logs.glob("*/*/*/*.log"), key=lambda path: [_natural(part) for part in path.parts[-4:]])

    def events(self) -> list[Json]:
        return read_events(self.folder / "events.yaml")


def _natural(text: str) -> list[tuple[int, str]]:
    """worker-2 before worker-10."""
    return [
        (int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", text.removesuffix(".log"))
    ]


def read_events(path: Path) -> list[Json]:
    """Each line of the file is an item of a YAML list, written as JSON."""
    with contextlib.suppress(OSError, ValueError):
        lines = path.read_text().splitlines()
        events = [json.loads(line.removeprefix("- ")) for line in lines if line.startswith("- ")]
        return [event for event in events if isinstance(event, dict)]
    return []


def events_text(events: list[Json]) -> str:
    return "".join(f"- {json.dumps(event, ensure_ascii=False)}\n" for event in events)


def records(root: Path) -> list[Record]:
    """All jobs of the history, newest first."""
    read = [record for folder in job_folders(root) if (record := read_record(folder))]
    return sorted(read, key=lambda record: (record.started, record.folder.name), reverse=True)


def read_record(folder: Path) -> Record | None:
    """None when it cannot be read. What nobody records any more and has no result was interrupted."""
    try:
        data = json.loads((folder / RESULT).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict):
        return None
    if not data.get("result") and not is_recorded(folder):
        data = interrupted(data, folder)
    return Record(folder, data)


def interrupted(data: Json, folder: Path) -> Json:
    """As it is known of a job whose process was killed: it ended not later than anything was written."""
    written = [path.stat().st_mtime for path in (folder / RESULT, *folder.glob(f"{LOGS}/*/*/*/*.log")) if path.exists()]
    message = data.get("message") or "its result is not known: the process that ran it was killed, or its disk was full"
    return {**data, "result": INTERRUPTED, "ended": format_time(max(written, default=0.0)), "message": message}


def job_folders(root: Path) -> list[Path]:
    """The folders of all jobs, oldest first."""
    with contextlib.suppress(OSError):
        return sorted(path for path in root.iterdir() if not path.name.startswith(".") and path.is_dir())
    return []


# Who records.


class RecorderLock:
    """Held as long as this process lives. Raises OSError."""

    def __init__(self, root: Path) -> None:
        folder = root / RECORDERS
        private(root)
        private(folder)
        self.name = f"{os.getpid()}-{time.time_ns():x}"
        self._path = folder / self.name
        beside = folder / f".{self.name}"  # locked before it has the name that others look for
        self._file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        beside.rename(self._path)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_recorded(folder: Path) -> bool:
    """Whether a process that lives writes into this job's folder."""
    try:
        name = (folder / RECORDING).read_text().strip()
    except OSError:
        return False
    return bool(name) and is_held(folder.parent / RECORDERS / name)


def is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def shortened(path: Path) -> str:
    """With ~ for the home folder."""
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def find(root: Path, text: str, namespace: str = "") -> list[Record]:
    """The jobs of that name (NAME, KIND/NAME) or that id, newest first. An id names one job, whatever its namespace."""
    kind, _, name = text.rpartition("/")
    kind = kind.lower()
    every = records(root)
    if not kind and (by_id := [record for record in every if record.id == name]):
        return by_id
    return [
        record
        for record in every
        if record.name == name
        and (not namespace or record.namespace == namespace)
        and (not kind or kind in _names_of_kind(record))
    ]


def _names_of_kind(record: Record) -> tuple[str, ...]:
    kind = record.kind.lower()
    group = record.text("apiVersion").partition("/")[0]
    return (kind, f"{kind}s", f"{kind}.{group}", f"{kind}s.{group}")


def summary(record: Record) -> dict[str, Any]:
    """A record as programs read it."""
    return {"id": record.id, **record.data, "folder": str(record.folder), "logs": str(record.logs)}
