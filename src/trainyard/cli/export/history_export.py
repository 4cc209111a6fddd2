"""`trainyard history export`: reads all that the history has of a run, bounds it, masks secrets, writes one page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainyard.app.history.recorded_job import diagnosis_of, events_of, facts_of
from trainyard.app.history.recorded_logs import LogFile, log_files
from trainyard.app.history.records import INTERRUPTED, HistoryRecord, write_file
from trainyard.app.job_files import open_file, read_bytes
from trainyard.cli.command.cluster_command import CommandError
from trainyard.cli.export.page import ExportedLog, ExportedRun, export_page
from trainyard.cli.output.record_lines import restarts_of, took
from trainyard.kinds import kind_of
from trainyard.objects import Json, format_time
from trainyard.objects.log_files import pieces
from trainyard.objects.manifest import ManifestError
from trainyard.objects.manifest import read as read_manifest
from trainyard.objects.metric_points import GPU_UTILIZATION, NODE_SOURCE, MetricPoint
from trainyard.objects.printable import without_colours
from trainyard.objects.structs import replace
from trainyard.objects.yaml_text import as_yaml
from trainyard.page.event_series import EventReader
from trainyard.page.options import ClaimFolders
from trainyard.page.series import Curve, SeriesAnswer, SeriesReader
from trainyard.views.diagnosis import Finding, JobDiagnosis
from trainyard.views.event_view import event_view
from trainyard.views.masking import mask_env, masker
from trainyard.views.output_lines import OutputLineSplitter
from trainyard.views.recorded import ID_LENGTH, recorded_view
from trainyard.views.timeline import Lane, timeline

MAX_LOGS = 1000  # logs on the page; those of failed runs come first
MAX_LOG_SIZE, MIN_LOG_SIZE = 256 << 10, 8 << 10  # characters of one log
MAX_SIZE = 16 << 20  # characters of all logs
MAX_LINE = 4000  # characters of a line
CURVE_POINTS = 500  # of one curve
USE_POINTS = 200  # of the use of a replica's GPUs
MAX_EVENT_PARTS = 64  # of event files, 8 MiB each


def export_record(record: HistoryRecord, file: Path | None, force: bool, now: float) -> Path:
    """Write the page, mode 0600, and return its path. `file`: None for NAME-ID.html; `now`: Unix seconds.

    Raises CommandError when the file exists and is not replaced, or cannot be written."""
    path = file or Path(f"{record.name}-{record.id}.html")
    if path.exists() and not force:
        raise CommandError(f"{path} exists; write another name, or --force to replace it")
    try:
        write_file(path, export_page(exported_run(record, now)))
    except OSError as error:
        raise CommandError(
            f"{path} cannot be written: {(error.strerror or str(error)).lower()}; name another FILE"
        ) from None
    return path


def exported_run(record: HistoryRecord, now: float) -> ExportedRun:
    """The content of the page. `now`: Unix seconds."""
    manifest, secrets = _masked_manifest(record.folder / "manifest.yaml")
    mask = masker(secrets)
    facts = facts_of(record)
    diagnosis = diagnosis_of(record, facts) if facts else None
    kind = kind_of({"apiVersion": record.text("apiVersion"), "kind": record.kind})
    end = record.ended_at if record.ended_at is not None else now
    cut_off = end if record.result in (INTERRUPTED, "Deleted") else None
    files, pods = log_files(record), record.pods
    lanes = timeline((), pods, kind.roles.container if kind else "", cut_off)
    shown = _chosen(pods, files)
    size = max(MIN_LOG_SIZE, min(MAX_LOG_SIZE, MAX_SIZE // max(1, len(shown))))
    return ExportedRun(
        title=f"{record.kind} {record.namespace}/{record.name}",
        fields=[(name, mask(value)) for name, value in _fields(record, now)],
        diagnosis=_masked_diagnosis(diagnosis, mask) if diagnosis else None,
        lanes=lanes,
        device_use=exported_device_use(record, lanes),
        curves=exported_curves(record, mask),
        pods=[recorded_view(record.data, entry) for entry in pods],
        events=[replace(view, message=mask(view.message)) for view in map(event_view, events_of(record))],
        logs=[exported_log(file, size, mask) for file in shown],
        omitted_logs=len(files) - len(shown),
        manifest=manifest,
        end=end,
    )


def _fields(record: HistoryRecord, now: float) -> list[tuple[str, str]]:
    return [
        ("result", record.result or "running"),
        ("message", " ".join(record.text("message").split())),
        ("kind", f"{record.kind} ({record.text('apiVersion')})"),
        ("started", record.text("started") or record.text("created")),
        ("ended", record.text("ended")),
        ("took", took(record, now)),
        ("restarts", restarts_of(record)),
        ("deleted", record.text("deleted")),
        ("id", record.id),
        ("uid", record.text("uid")),
        ("exported", format_time(now)),
    ]


def exported_curves(record: HistoryRecord, mask: Callable[[str], str]) -> SeriesAnswer:
    """The curves of the leading replica, and of event files that are still there. Reads files."""
    reader, events = EventReader(ClaimFolders()), dict[str, list[MetricPoint]]()
    for _ in range(MAX_EVENT_PARTS):
        before, events = sum(map(len, events.values())), reader.read(record.text("uid"), record)
        if sum(map(len, events.values())) <= before:
            break
    answer = SeriesReader().read(record.logs, [], [], CURVE_POINTS, events)
    return replace(
        answer,
        series=[replace(curve, name=mask(curve.name)) for curve in answer.series],
        spread=[replace(spread, name=mask(spread.name)) for spread in answer.spread],
        corrupt=[mask(file) for file in reader.corrupt(record.text("uid"))],
    )


def exported_device_use(record: HistoryRecord, lanes: Sequence[Lane]) -> dict[str, Curve]:
    """Replica -> how busy its GPUs were, of those that had some. Reads files."""
    replicas = list(dict.fromkeys(lane.replica for lane in lanes))
    answer = SeriesReader().read(record.logs, [GPU_UTILIZATION], replicas, USE_POINTS)
    return {curve.replica: curve for curve in answer.series if curve.source == NODE_SOURCE}


# Secrets.


def _masked_manifest(path: Path) -> tuple[str, list[str]]:
    """The manifest as text, and the values that are masked in it. "" when it cannot be read."""
    try:
        documents = read_manifest(read_bytes(path, path.parent), path.name)
    except (OSError, ManifestError):
        return "", []
    secrets: list[str] = []
    return "---\n".join(as_yaml(mask_env(document.obj, secrets)) for document in documents), secrets


def _masked_diagnosis(diagnosis: JobDiagnosis, mask: Callable[[str], str]) -> JobDiagnosis:
    findings = [
        Finding(
            finding.level,
            mask(finding.summary),
            mask(finding.where),
            tuple(map(mask, finding.evidence)),
            mask(finding.fix),
        )
        for finding in diagnosis.findings
    ]
    return replace(diagnosis, findings=tuple(findings))


# Logs.


def _chosen(pods: Sequence[Json], files: Sequence[LogFile]) -> list[LogFile]:
    """At most MAX_LOGS of the logs, in their order: those of failed runs, then the others."""
    failed = {
        (str(pod.get("uid"))[:ID_LENGTH], str(container.get("name")), run.get("run"))
        for pod in pods
        for container in pod.get("containers") or ()
        for run in container.get("runs") or ()
        if run.get("exitCode")
    }
    by_urgency = sorted(files, key=lambda file: (file.pod, file.container, file.run) not in failed)
    chosen = set(by_urgency[:MAX_LOGS])
    return [file for file in files if file in chosen]


def exported_log(file: LogFile, size: int, mask: Callable[[str], str]) -> ExportedLog:
    """The first and the last lines of a log: about `size` characters, a quarter of them at its beginning."""
    name = f"{file.replica}, attempt {file.attempt}, container {file.container}, run {file.run}"
    lines = _BoundedLines(size // 4, size - size // 4)
    splitter = OutputLineSplitter()
    try:
        with open_file(file.path, file.path.parents[3]) as log:
            for piece in pieces(log):
                lines.add(splitter.feed(piece))
        lines.add(splitter.finish())
    except OSError as error:
        return ExportedLog(name, [f"{file.path.name}: {(error.strerror or str(error)).lower()}"], 0, [])
    return ExportedLog(name, [mask(line) for line in lines.first], lines.omitted, [mask(line) for line in lines.last])


class _BoundedLines:
    """The first lines up to `first_size` characters, and the last ones up to `last_size`."""

    def __init__(self, first_size: int, last_size: int) -> None:
        self.first: list[str] = []
        self.last: deque[str] = deque()
        self.omitted = 0
        self._first_left, self._last_left = first_size, last_size

    def add(self, lines: Iterable[bytes]) -> None:
        for raw in lines:
            line = without_colours(raw).decode("utf-8", "replace").rstrip()
            if len(line) > MAX_LINE:
                line = f"{line[:MAX_LINE]} ({len(line) - MAX_LINE} more characters)"
            if self._first_left > 0:
                self.first.append(line)
                self._first_left -= len(line) + 1
                continue
            self.last.append(line)
            self._last_left -= len(line) + 1
            while self._last_left < 0 and len(self.last) > 1:
                self._last_left += len(self.last.popleft()) + 1
                self.omitted += 1
