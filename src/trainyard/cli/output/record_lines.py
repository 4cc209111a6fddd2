"""One record of the history as lines of text."""

from __future__ import annotations

import re
from pathlib import Path

from trainyard.app.history.recorded_job import events_of
from trainyard.app.history.records import HistoryRecord, with_tilde
from trainyard.app.job_files import status_of
from trainyard.cli.output.layout import wrapped
from trainyard.cli.output.printing import align_columns, event_rows, without_empty_columns
from trainyard.objects import parse_time
from trainyard.objects.log_files import disk_size
from trainyard.objects.numbers import count_text
from trainyard.objects.printable import printable
from trainyard.views.durations import format_age, format_clock
from trainyard.views.event_view import event_view
from trainyard.views.job_details import restarts_text
from trainyard.views.memory import format_bytes
from trainyard.views.recorded import recorded_view

_SHOWN_EVENTS = 20
_MIN_CELL_WIDTH = 20  # columns for the last cell of a wrapped row


def took(record: HistoryRecord, now: float) -> str:
    """How long the job ran, or runs: 12:34. `now`: Unix seconds."""
    start = parse_time(record.data.get("started")) or record.started
    return format_clock((record.ended_at or now) - start)


def restarts_of(record: HistoryRecord) -> str:
    """The restarts of the job, and those that the program did not cause."""
    causes = record.data.get("restartCauses") or {}
    return restarts_text(int(record.data.get("restarts") or 0), causes.items()) or "0"


def record_lines(record: HistoryRecord, now: float, width: int) -> list[str]:
    """The record of a job as lines of at most `width` columns; control characters that the job wrote are escaped."""
    return [part for line in record_fields(record, now) for part in _wrap_line(printable(line, True), width)]


def _wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line: the rest of a value, or of the last cell of a table row, is aligned below its first word; if the
    other cells leave no space for it, it is indented below them."""
    if len(line) <= width:
        return [line]
    if label_match := re.match(r"\S+: +", line):
        return wrapped(line[label_match.end() :], width, label_match[0], " " * label_match.end())
    cells = line[: line.rfind("  ") + 2]
    text = line[len(cells) :]
    if len(cells) <= width - _MIN_CELL_WIDTH:
        return wrapped(text, width, cells, " " * len(cells))
    return [*([cells.rstrip()] if cells.strip() else []), *wrapped(text, width, " " * 11)]


def record_fields(record: HistoryRecord, now: float) -> list[str]:
    """The record of a job as lines of any width: fields, pods, log files, events."""
    fields = [
        ("Name", f"{record.namespace}/{record.name}"),
        ("Id", record.id),
        ("Kind", f"{record.kind} ({record.text('apiVersion')})"),
        ("Result", record.result or "running"),
        ("Why", " ".join(record.text("message").split())),
        ("Started", _time_and_age(record.text("started") or record.text("created"), now)),
        ("Ended", _time_and_age(record.text("ended"), now)),
        ("Took", took(record, now)),
        ("Restarts", restarts_of(record)),
        ("Deleted", _time_and_age(record.text("deleted"), now)),
        ("Kept", "whatever the limits of the history" if record.is_kept else ""),
        ("Where", "trainyard run" if record.text("where") == "run" else f"the cluster {record.text('where')}"),
        ("Folder", with_tilde(record.folder)),
        ("Logs", with_tilde(record.logs) if record.logs.parent != record.folder else ""),
    ]
    lines = align_columns([[f"{name}:", value] for name, value in fields if value])
    if len(rows := _pod_rows(record)) > 1:
        lines += ["Pods:", *(f"  {line}" for line in align_columns(rows))]
    for replica, left_out in (record.data.get("leftOut") or {}).items():
        lines.append(
            f"  {replica}: without {count_text(left_out.get('pods', 0), 'pod')} between the first and the last ones"
        )
    files = record.log_files()
    lines += ["Logs:"] if files else []
    lines += [f"  {_file_size(path, record.logs):>8}  {path.relative_to(record.logs)}" for path in files]
    return [*lines, *_event_lines(record, now)]


def _pod_rows(record: HistoryRecord) -> list[list[str]]:
    """A row per pod, after the header."""
    rows = [["REPLICA", "ATTEMPT", "STATE", "RESTARTS", "EXIT", "TIME", "GPU PEAK"]]
    for entry in record.pods:
        view = recorded_view(record.data, entry)
        took = "" if view.started is None or view.ended_at is None else format_clock(view.ended_at - view.started)
        peak = format_bytes(view.peak_device_memory) if view.peak_device_memory else ""
        rows.append([view.name, str(entry.get("attempt")), view.state, str(view.restarts), view.exit, took, peak])
    return without_empty_columns(rows, ("GPU PEAK",))


def _file_size(path: Path, root: Path) -> str:
    try:
        stat = status_of(path, root)
    except OSError:
        return "?"
    return format_bytes(disk_size(stat.st_size, stat.st_blocks))


def _event_lines(record: HistoryRecord, now: float) -> list[str]:
    events = events_of(record)
    if not events:
        return ["Events: none"]
    earlier = len(events) - _SHOWN_EVENTS
    more = [f"  ({earlier} earlier ones: {with_tilde(record.folder / 'events.yaml')})"] if earlier > 0 else []
    rows = event_rows(map(event_view, events[-_SHOWN_EVENTS:]), now)
    return ["Events:", *more, *(f"  {line}" for line in align_columns(rows))]


def _time_and_age(time_text: str, now: float) -> str:
    timestamp = parse_time(time_text)
    return "" if timestamp is None else f"{time_text} ({format_age(now - timestamp)} ago)"
