"""`trainyard history [JOB]`: the jobs that ran on this machine, from the history folder. Needs no cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

import click

from trainyard.app.history import (
    HistoryRecord,
    find_records,
    history_folder,
    is_recorded,
    read_records,
    summary,
    with_tilde,
)
from trainyard.cli.cluster_command import CommandError, note, print_output, run_and_exit
from trainyard.cli.codes import INVALID
from trainyard.cli.completion import history_job_names
from trainyard.cli.layout import terminal_table, terminal_width, wrapped
from trainyard.cli.printing import FORMS, align_columns, as_json, as_yaml
from trainyard.objects import parse_time
from trainyard.objects.log_files import disk_size
from trainyard.views.durations import format_age, format_clock
from trainyard.views.memory import format_bytes

_SHOWN_EVENTS = 20
_MIN_CELL_WIDTH = 20  # columns for the last cell of a wrapped row


@click.command()
@click.argument("job", required=False, shell_complete=history_job_names)
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only jobs of this namespace.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest jobs.")
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds folders and messages; name prints ids.")
@click.option("--delete", is_flag=True, help="Remove JOB from the history, with its logs.")
def history(job: str | None, namespace: str, limit: int | None, output: str | None, delete: bool) -> None:
    """Show the jobs that `run` and `up` ran on this machine, the newest first, or all that is kept of one JOB.

    JOB is a name, KIND/NAME, or an id of the first column. Kept are the manifest, the last state of the job, its
    events, how each pod ended, and all logs, also after `down` and after the job was deleted.

    Examples: trainyard history, trainyard history mnist, trainyard logs mnist
    """
    run_and_exit(lambda: _history(job or "", namespace, limit, output or "", delete))


def _history(job: str, namespace: str, limit: int | None, form: str, delete: bool) -> None:
    if delete and not job:
        raise CommandError("--delete needs a JOB: a name, KIND/NAME or an id", INVALID)
    if delete:
        _delete(_records_of(job, namespace))
    elif job and form:
        _print(_records_of(job, namespace)[:1], form, True)
    elif job:
        _show(_records_of(job, namespace))
    else:
        records = [record for record in read_records(history_folder()) if namespace in ("", record.namespace)]
        _print(records[:limit], form, False)


def _records_of(job: str, namespace: str) -> list[HistoryRecord]:
    """The jobs of that name, newest first. Raises CommandError when there is none."""
    matches = find_records(history_folder(), job, namespace)
    if not matches:
        names = list(dict.fromkeys(record.name for record in read_records(history_folder())))
        hint = f"the newest are: {', '.join(names[:5])}" if names else "it is empty"
        raise CommandError(f"no job {job} is in the history of this machine; {hint}")
    return matches


def _print(jobs: Sequence[HistoryRecord], form: str, single: bool) -> None:
    if form in ("json", "yaml"):
        summaries = [summary(record) for record in jobs]
        print_output((as_json if form == "json" else as_yaml)(summaries[0] if single else summaries))
    elif form == "name":
        print_output("".join(f"{record.id}\n" for record in jobs))
    elif not jobs:
        note("No job has run on this machine yet (or the history was deleted).")
    else:
        print_output("\n".join(terminal_table(table(jobs, time.time(), form == "wide"), form == "wide")))


def table(jobs: Sequence[HistoryRecord], now: float, wide: bool = False) -> list[list[str]]:
    """A row per job, after the header. WHERE is `run`, or the name of the background cluster."""
    rows = [["ID", "JOB", "KIND", "AGE", "TOOK", "RESULT", "RESTARTS", "WHERE", *(["FOLDER", "WHY"] if wide else [])]]
    for record in jobs:
        name = record.name if record.namespace == "default" else f"{record.namespace}/{record.name}"
        row = [record.id, name, record.kind or "?", format_age(now - record.started), _duration(record, now)]
        row += [record.result or "running", str(record.data.get("restarts") or 0), record.text("where")]
        more = [with_tilde(record.folder), " ".join(record.text("message").split())]
        rows.append([*row, *(more if wide else [])])
    return rows


def _duration(record: HistoryRecord, now: float) -> str:
    start = parse_time(record.data.get("started")) or record.started
    return format_clock((record.ended or now) - start)


def _delete(matches: list[HistoryRecord]) -> None:
    from trainyard.app.retention import remove_record

    record = matches[0]
    if len(matches) > 1:
        ids = ", ".join(f"{match.id} ({format_age(time.time() - match.started)} ago)" for match in matches[:5])
        raise CommandError(f"{record.name} is the name of {len(matches)} jobs, write the id of one: {ids}", INVALID)
    if is_recorded(record.folder):
        raise CommandError(
            f"{record.name} still runs (cluster: {record.text('where')}); its history can be deleted afterwards"
        )
    remove_record(record.folder)
    note(f"{record.name} ({record.id}) is deleted from the history.")
    if record.logs.parent != record.folder:
        note(f"Its logs stay where --logs-dir put them: {with_tilde(record.logs)}")


# One job.


def _show(matches: list[HistoryRecord]) -> None:
    print_output("\n".join(record_lines(matches[0], time.time(), terminal_width())))
    if len(matches) > 1:
        earlier_ids = ", ".join(f"{match.id} ({format_age(time.time() - match.started)} ago)" for match in matches[1:4])
        note(f"{len(matches) - 1} more of that name: {earlier_ids}{', ...' if len(matches) > 4 else ''}")


def record_lines(record: HistoryRecord, now: float, width: int) -> list[str]:
    """The record of a job as lines of at most `width` columns."""
    return [part for line in record_fields(record, now) for part in _wrap_line(line, width)]


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
        ("Took", _duration(record, now)),
        ("Restarts", str(record.data.get("restarts") or 0)),
        ("Deleted", _time_and_age(record.text("deleted"), now)),
        ("Where", "trainyard run" if record.text("where") == "run" else f"the cluster {record.text('where')}"),
        ("Folder", with_tilde(record.folder)),
        ("Logs", with_tilde(record.logs) if record.logs.parent != record.folder else ""),
    ]
    lines = align_columns([[f"{name}:", value] for name, value in fields if value])
    if len(rows := _pod_rows(record)) > 1:
        lines += ["Pods:", *(f"  {line}" for line in align_columns(rows))]
    for replica, left_out in (record.data.get("leftOut") or {}).items():
        lines.append(f"  {replica}: {left_out['pods']} pods between the first and the last ones are left out")
    files = record.log_files()
    lines += (
        ["Logs:", *(f"  {_file_size(path):>8}  {path.relative_to(record.logs)}" for path in files)] if files else []
    )
    return [*lines, *_event_lines(record, now)]


def _pod_rows(record: HistoryRecord) -> list[list[str]]:
    """A row per pod, after the header. The restarts are those of the record, which leaves out the ones after the whole
    cluster ended."""
    from trainyard.views.recorded import recorded_pod
    from trainyard.views.replica_view import replica_view

    rows = [["REPLICA", "ATTEMPT", "STATE", "RESTARTS", "EXIT", "TIME"]]
    for entry in record.pods:
        view = replica_view(recorded_pod(record.data, entry))
        took = "" if view.started is None or view.ended is None else format_clock(view.ended - view.started)
        restarts = str(entry.get("restarts") or 0)
        rows.append([view.name, str(entry.get("attempt")), view.state, restarts, view.exit, took])
    return rows


def _file_size(path: os.PathLike[str]) -> str:
    try:
        stat = os.stat(path)
    except OSError:
        return "?"
    return format_bytes(disk_size(stat.st_size, stat.st_blocks))


def _event_lines(record: HistoryRecord, now: float) -> list[str]:
    events = sorted(record.events(), key=lambda event: str(event.get("time")))
    if not events:
        return ["Events: none"]
    rows = [["AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"]]
    for event in events[-_SHOWN_EVENTS:]:
        timestamp = parse_time(event.get("time"))
        count = int(event.get("count") or 1)
        age_text = (
            f"{format_age(now - timestamp) if timestamp is not None else ''}{f' (x{count})' if count > 1 else ''}"
        )
        text = " ".join(str(event.get("message")).split())
        rows.append([age_text, str(event.get("type")), str(event.get("reason")), str(event.get("object")), text])
    earlier = len(events) - _SHOWN_EVENTS
    more = [f"  ({earlier} earlier ones: {with_tilde(record.folder / 'events.yaml')})"] if earlier > 0 else []
    return ["Events:", *more, *(f"  {line}" for line in align_columns(rows))]


def _time_and_age(time_text: str, now: float) -> str:
    timestamp = parse_time(time_text)
    return "" if timestamp is None else f"{time_text} ({format_age(now - timestamp)} ago)"
