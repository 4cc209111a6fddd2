"""The history's record of a job, as API objects: for commands about a deleted job or deleted pods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainyard.app.cluster_folders import BackgroundError, command_line
from trainyard.app.history import (
    ID_LENGTH,
    HistoryRecord,
    history_folder,
    job_folders,
    pod_log_folder,
    read_record,
    with_tilde,
)
from trainyard.cli.codes import GIVEN_UP
from trainyard.cli.diagnosis import END, Facts, Finding, why
from trainyard.cli.diagnosis.failures import failures
from trainyard.cli.diagnosis.inputs import log_key
from trainyard.cli.diagnosis.output import printable_lines
from trainyard.cli.replica_view import replica_view
from trainyard.cli.view import format_age
from trainyard.core import Config, Kind, parse_job
from trainyard.kinds import kind_of, notes
from trainyard.objects import Json, parse_time
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.labels import ATTEMPT, INDEX, OWNER, ROLE
from trainyard.objects.log_files import read_piece, tail_offset
from trainyard.objects.manifest import ManifestError
from trainyard.objects.manifest import read as read_manifest

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
        documents = read_manifest((record.folder / "job.yaml").read_bytes(), "job.yaml")
    except (OSError, ManifestError):
        return None
    return documents[0].obj if documents else None


def last_pods(record: HistoryRecord, kind: Kind, job: Json) -> list[Json]:
    """The newest pod of each replica as it was last recorded, as API objects."""
    newest = {str(entry.get("replica")): entry for entry in record.pods}
    templates = {role.name: role.template or {} for role in parse_job(kind, job, Config()).roles}
    return [recorded_pod(record, entry, templates.get(str(entry.get("role")), {})) for entry in newest.values()]


def recorded_pod(record: HistoryRecord, entry: Json, template: Json | None = None) -> Json:
    """A pod of the record as an API object. `template`: the pod template of its role, for the spec."""
    labels = {OWNER: record.text("uid"), ATTEMPT: str(entry.get("attempt") or 0)}
    labels |= {ROLE: str(entry["role"]), INDEX: str(entry["index"])} if entry.get("role") else {}
    labels |= {} if entry.get("role") else {"app": str(entry.get("replica"))}
    meta = {name: entry.get(name) for name in ("name", "uid")} | {"namespace": record.namespace, "labels": labels}
    meta |= {"creationTimestamp": entry.get("created")}
    if entry.get("deleted") and not entry.get("endedBeforeDeletion"):  # its deletion may have ended it
        meta["deletionTimestamp"] = entry.get("ended") or entry.get("created")
    parts: dict[str, list[Json]] = {"initContainerStatuses": [], "containerStatuses": []}
    for container in entry.get("containers") or []:
        parts["initContainerStatuses" if container.get("init") else "containerStatuses"].append(_status(container))
    status = {name: entry.get(name) for name in ("phase", "reason", "message")} | {"startTime": entry.get("started")}
    status["conditions"] = [{"type": "DisruptionTarget", "status": "True"}] if entry.get("stopped") else None
    spec = {**((template or {}).get("spec") or {}), "nodeName": entry.get("node")}
    status = _present({**status, **parts})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _present(meta), "spec": spec, "status": status}


def _present(fields: Json) -> Json:
    """The fields that have a value: as in the API, there are no nulls."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _status(container: Json) -> Json:
    """A ContainerStatus from the recorded runs: the last recorded run is `state` if it is the container's current run
    (run == restarts + 1), else `lastState`."""
    restarts, runs = int(container.get("restarts") or 0), container.get("runs") or []
    status: Json = {"name": container.get("name"), "restartCount": restarts, "state": {}}
    if runs:
        run = runs[-1]
        ended = {"exitCode": run.get("exitCode"), "reason": run.get("reason"), "message": run.get("message")}
        ended |= {"startedAt": run.get("started"), "finishedAt": run.get("ended")}
        status["state" if run.get("run") == restarts + 1 else "lastState"] = {"terminated": _present(ended)}
    return status


def kept_logs(record: HistoryRecord | None, pods: Iterable[Json]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The last lines of the failed containers of these pods, by the pod's uid and the container's name. For a log file
    that no longer exists the value is (NOT_KEPT,), not an empty tuple."""
    logs = {}
    for pod in pods:
        for container in container_statuses(pod.get("status")):
            terminated = container.last_terminated
            if terminated is None or not terminated.get("exitCode"):
                continue
            run = container.restarts + (1 if container.state("terminated") else 0)
            folder = record.logs / pod_log_folder(pod) / container.name if record else None
            logs[log_key(pod, container.name)] = _last_lines(folder / f"{run}.log") if folder else (NOT_KEPT,)
    return {container_key: lines for container_key, lines in logs.items() if lines}


def _last_lines(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb", buffering=0) as log:
            text, offset = b"", tail_offset(log, TAIL_LINES)
            piece, offset = read_piece(log, offset)
            while piece:
                text = (text + piece)[-MAX_TAIL_BYTES:]
                piece, offset = read_piece(log, offset)
    except OSError:
        return (NOT_KEPT,)
    return printable_lines(text)


def gone_pods(record: HistoryRecord, kind: Kind, job: Json, pods: Iterable[Json]) -> list[Json]:
    """The last recorded pods of the replicas that have no pod in `pods`."""
    names = {replica_view(pod).name for pod in pods}
    return [pod for pod in last_pods(record, kind, job) if replica_view(pod).name not in names]


def events_of(record: HistoryRecord) -> list[Json]:
    """The recorded events as API objects, oldest first."""
    return [_event(entry, record) for entry in sorted(record.events(), key=lambda entry: str(entry.get("time")))]


def _event(entry: Json, record: HistoryRecord) -> Json:
    kind, _, name = str(entry.get("object")).partition("/")
    meta = {"name": entry.get("uid"), "uid": entry.get("uid"), "namespace": record.namespace}
    involved_object = {"kind": kind, "name": name, "namespace": record.namespace}
    fields = {field: entry.get(field) for field in ("type", "reason", "message", "count")}
    source = {"component": entry.get("source")}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": involved_object, "source": source}
    return event | fields | {"lastTimestamp": entry.get("time")}


def facts_of(record: HistoryRecord) -> Facts | None:
    """The Facts for `why` about a deleted job. None when the record has no readable job of a known kind."""
    job = job_object(record)
    kind = kind_of(job) if job else None
    if job is None or kind is None:
        return None
    pods = last_pods(record, kind, job)
    return Facts(
        kind=kind,
        job=job,
        now=time.time(),
        pods=tuple(pods),
        events=tuple(events_of(record)),
        logs=kept_logs(record, pods),
        notes=tuple(notes(kind, job)),
        process_nodes=frozenset(str(entry.get("node") or "") for entry in record.pods),
    )


def findings_of(record: HistoryRecord, facts: Facts) -> list[Finding]:
    """The findings about the job's end, also for a job that was deleted or interrupted."""
    return why(facts) if record.result in ("Succeeded", "Failed", "") else list(_cut_short(record, facts))


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
