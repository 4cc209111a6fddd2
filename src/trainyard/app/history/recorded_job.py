"""The history's record of a job, as API objects: for commands about a deleted job or deleted pods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from trainyard.app.background.cluster_folders import BackgroundError, command_line
from trainyard.app.history.readable import METADATA, readable
from trainyard.app.history.recorded_values import recorded_usages
from trainyard.app.history.records import (
    GIVEN_UP,
    HistoryRecord,
    history_folder,
    job_folders,
    read_record,
    with_tilde,
)
from trainyard.app.job_files import open_file, read_bytes, status_of
from trainyard.core import Config, Kind, parse_job
from trainyard.kinds import kind_of, notes
from trainyard.objects import Json, parse_time
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.log_files import read_piece, tail_offset
from trainyard.objects.manifest import ManifestError
from trainyard.objects.manifest import read as read_manifest
from trainyard.objects.structs import replace
from trainyard.views.diagnosis import END, Facts, Finding, JobDiagnosis, diagnose
from trainyard.views.diagnosis.doubts import may_be_doubted
from trainyard.views.diagnosis.failures import failed_run, failures
from trainyard.views.diagnosis.inputs import log_key
from trainyard.views.diagnosis.output import printable_lines
from trainyard.views.durations import format_age
from trainyard.views.recorded import ID_LENGTH, pod_log_folder, recorded_event, recorded_pod
from trainyard.views.replica_view import replica_view

TAIL_LINES = 240  # last lines of a log: enough for a launcher's tracebacks of several processes, and its own
NOT_KEPT = "(its log is not kept)"
MAX_TAIL_BYTES = 1 << 16  # maximal size of these lines in bytes


def find_record(uid: str) -> HistoryRecord | None:
    """The record of the job with that uid, if this machine has run it."""
    try:
        folders = job_folders(history_folder())
    except BackgroundError:
        return None
    folder = next((folder for folder in folders if folder.name.endswith(f"-{uid[:ID_LENGTH]}")), None)
    record = read_record(folder) if folder else None
    return record if record is not None and record.text("uid") == uid else None


def job_object(record: HistoryRecord) -> Json | None:
    """The job as it was last recorded; None when the record has no job or it cannot be read."""
    try:
        documents = read_manifest(read_bytes(record.folder / "job.yaml", record.folder), "job.yaml")
        job = documents[0].obj if documents else {}
        msgspec.json.encode(job)  # what is no JSON, such as half of a surrogate pair, is in no object of an API
    except (OSError, ManifestError, UnicodeEncodeError, OverflowError):
        return None
    metadata = readable(job.get("metadata"), METADATA)
    return {**job, "metadata": metadata} if metadata else None


def job_written_at(record: HistoryRecord) -> int | None:
    """When the record's job was written, in ns: another number when `job_object` may have changed; None without one."""
    try:
        return status_of(record.folder / "job.yaml", record.folder).st_mtime_ns
    except OSError:
        return None


def last_pods(record: HistoryRecord, kind: Kind, job: Json) -> list[Json]:
    """The newest pod of each replica as it was last recorded, as API objects."""
    newest = {str(entry.get("replica")): entry for entry in record.pods}
    templates = {role.name: role.template or {} for role in parse_job(kind, job, Config()).roles}
    return [recorded_pod(record.data, entry, templates.get(str(entry.get("role")), {})) for entry in newest.values()]


def kept_logs(
    record: HistoryRecord | None, pods: Iterable[Json], failed_only: bool = True, cause: str = ""
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The last lines of the failed containers of these pods, by the pod's uid and the container's name; of all of them
    without `failed_only`, then the first lines, too. `cause`: of the job's failure. For a log file that no longer
    exists the value is (NOT_KEPT,), not an empty tuple."""
    logs = {}
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            terminated = container.last_terminated
            if failed_only and (terminated is None or not terminated.get("exitCode")):
                continue
            run = container.restarts + (1 if container.state("terminated") or not failed_only else 0)
            if failed_only and (failed := failed_run(container, cause)):
                run = failed[0]
            lines: tuple[str, ...] = (NOT_KEPT,)
            if record is not None:
                read = _last_lines if failed_only else _first_and_last_lines
                lines = read(record.logs / pod_log_folder(pod) / container.name / f"{run}.log", record.logs)
            logs[log_key(pod, container.name)] = lines
    return {container_key: lines for container_key, lines in logs.items() if lines}


def _last_lines(path: Path, root: Path) -> tuple[str, ...]:
    try:
        with open_file(path, root) as log:
            text, offset = b"", tail_offset(log, TAIL_LINES, MAX_TAIL_BYTES)
            piece, offset = read_piece(log, offset)
            while piece:
                text = (text + piece)[-MAX_TAIL_BYTES:]
                piece, offset = read_piece(log, offset)
    except OSError:
        return (NOT_KEPT,)
    return printable_lines(text)


def _first_and_last_lines(path: Path, root: Path) -> tuple[str, ...]:
    try:
        with open_file(path, root) as log:
            head = log.read(MAX_TAIL_BYTES)
    except OSError:
        return (NOT_KEPT,)
    first = printable_lines(head)
    return first if len(head) < MAX_TAIL_BYTES else (*first, *_last_lines(path, root))


def gone_pods(record: HistoryRecord, kind: Kind, job: Json, pods: Iterable[Json]) -> list[Json]:
    """The last recorded pods of the replicas that have no pod in `pods`."""
    names = {replica_view(pod).name for pod in pods}
    return [pod for pod in last_pods(record, kind, job) if replica_view(pod).name not in names]


def events_of(record: HistoryRecord) -> list[Json]:
    """The recorded events as API objects, oldest first."""
    entries = sorted(record.events(), key=lambda entry: str(entry.get("time")))
    return [recorded_event(record.data, entry) for entry in entries]


def facts_of(record: HistoryRecord) -> Facts | None:
    """The Facts for `why` about a deleted job. None when the record has no readable job of a known kind."""
    job = job_object(record)
    kind = kind_of(job) if job else None
    if job is None or kind is None:
        return None
    pods = last_pods(record, kind, job)
    parsed = parse_job(kind, job, Config())
    failed_only = not may_be_doubted(parsed)
    return Facts(
        kind=kind,
        job=job,
        now=time.time(),
        pods=tuple(pods),
        events=tuple(events_of(record)),
        logs=kept_logs(record, pods, failed_only, parsed.status.failure_cause),
        notes=tuple(notes(kind, job)),
        process_nodes=frozenset(str(entry.get("node") or "") for entry in record.pods),
        usages=tuple(recorded_usages(record, pods)),
    )


def diagnosis_of(record: HistoryRecord, facts: Facts) -> JobDiagnosis:
    """The diagnosis of the job's end, also for a job that was deleted or interrupted: that is its state then."""
    if record.result in ("Succeeded", "Failed", ""):
        return diagnose(facts)
    return replace(diagnose(facts), state=record.result, findings=tuple(_cut_short(record, facts)))


def _cut_short(record: HistoryRecord, facts: Facts) -> Iterator[Finding]:
    ended = parse_time(record.data.get("ended"))
    ago = f" {format_age(facts.now - ended)} ago" if ended is not None else ""
    deleted, message = record.result == "Deleted", record.text("message")
    summary = f"it was deleted{ago}, before its end" if deleted else f"it was cut short{ago}"
    mended = "mend what the message names; then " if message.startswith(GIVEN_UP) else ""
    rerun = f"{mended}`trainyard run {with_tilde(record.folder)}/manifest.yaml` runs it again"
    continues = not deleted and record.text("where") != "run"
    fix = f"`{command_line('up', record.text('where'))}` lets it go on; {rerun}" if continues else rerun
    where = f"history {record.id}, result.json: result={record.result}"
    yield Finding(END, summary, where, (message,) if message and not deleted else (), fix)
    yield from failures(facts, include_stopped=False)
