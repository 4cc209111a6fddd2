"""`trainyard history`: the jobs that ran on this machine, from the history folder. Needs no cluster.

`history` alone lists them; `history JOB` is `history show JOB`, and `history --delete JOB` is `history rm JOB`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from trainyard.app.history.records import (
    HistoryRecord,
    find_records,
    history_folder,
    is_recorded,
    read_records,
    summary,
    with_tilde,
)
from trainyard.cli.command.cluster_command import CommandError, note, print_output, run_and_exit
from trainyard.cli.command.codes import INVALID
from trainyard.cli.command.job_names import history_job_names
from trainyard.cli.output.layout import terminal_table, terminal_width
from trainyard.cli.output.printing import FORMS, as_json, as_yaml
from trainyard.views.durations import format_age

NAMESPACE = click.option("-n", "--namespace", metavar="NAME", default="", help="Only jobs of this namespace.")
JOB = click.argument("job", shell_complete=history_job_names)
JOBS = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=history_job_names)


class HistoryCommands(click.Group):
    """A group in which a first argument that is no subcommand is the JOB of `show`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand and its arguments."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The jobs, after the subcommands and options."""
        return [*super().shell_complete(ctx, incomplete), *history_job_names(ctx, self.params[0], incomplete)]


@click.group(cls=HistoryCommands, invoke_without_command=True, subcommand_metavar="[JOB] | COMMAND ...")
@NAMESPACE
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest jobs.")
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds folders and messages; name prints ids.")
@click.option("--delete", is_flag=True, help="Remove JOB from the history, with its logs: as `rm`.")
@click.pass_context
def history(ctx: click.Context, namespace: str, limit: int | None, output: str | None, delete: bool) -> None:
    """Show the jobs that `run` and `up` ran on this machine, the newest first, or all that is kept of one JOB.

    JOB is a name, KIND/NAME, or an id of the first column. Kept are the manifest, the last state of the job, its
    events, how each pod ended, and all logs, also after `down` and after the job was deleted.

    Examples: trainyard history, trainyard history mnist, trainyard history export mnist
    """
    ctx.obj = {"namespace": namespace, "output": output, "delete": delete}
    if ctx.invoked_subcommand is None:
        run_and_exit(lambda: _list(namespace, limit, output or "", delete))


@history.command()
@JOB
@NAMESPACE
@click.option("-o", "--output", type=click.Choice(FORMS), help="For more, or for programs.")
@click.option("--delete", is_flag=True, hidden=True)
@click.pass_obj
def show(group: dict[str, Any], job: str, namespace: str, output: str | None, delete: bool) -> None:
    """Show all that is kept of JOB, the newest of that name.

    Example: trainyard history show mnist
    """
    namespace, form = namespace or group["namespace"], output or group["output"]
    if delete or group["delete"]:
        run_and_exit(lambda: _remove(_unique_records([job], namespace)))
    elif form:
        run_and_exit(lambda: _print(_records_of(job, namespace)[:1], form, True))
    run_and_exit(lambda: _show(_records_of(job, namespace)))


@history.command()
@JOBS
@NAMESPACE
@click.pass_obj
def rm(group: dict[str, Any], jobs: tuple[str, ...], namespace: str) -> None:
    """Remove jobs from the history, with their logs. What `keep` keeps has to be released first.

    Example: trainyard history rm mnist
    """
    run_and_exit(lambda: _remove(_unique_records(jobs, namespace or group["namespace"])))


@history.command()
@JOBS
@NAMESPACE
@click.option("--undo", is_flag=True, help="Let the limits hold for them again.")
@click.pass_obj
def keep(group: dict[str, Any], jobs: tuple[str, ...], namespace: str, undo: bool) -> None:
    """Keep jobs in the history whatever its limits of number, size and age; they count for none.

    Example: trainyard history keep mnist
    """
    run_and_exit(lambda: _keep(_unique_records(jobs, namespace or group["namespace"]), not undo))


@history.command()
@JOB
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@NAMESPACE
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_obj
def export(group: dict[str, Any], job: str, file: Path | None, namespace: str, force: bool) -> None:
    """Write all that is kept of JOB as one HTML page, which any browser opens without a network.

    It has the result, why, a timeline, the pods, events, logs and the manifest. Of a long log it has the first and the
    last part. Values of env whose names are those of secrets are masked. FILE is NAME-ID.html without another name.

    Example: trainyard history export mnist
    """
    from trainyard.cli.export.history_export import export_record

    def write() -> None:
        record = _records_of(job, namespace or group["namespace"])[0]
        print_output(str(export_record(record, file, force, time.time())))

    run_and_exit(write)


def _records_of(job: str, namespace: str) -> list[HistoryRecord]:
    """The jobs of that name, newest first. Raises CommandError when there is none."""
    matches = find_records(history_folder(), job, namespace)
    if not matches:
        names = list(dict.fromkeys(record.name for record in read_records(history_folder())))
        hint = f"the newest are: {', '.join(names[:5])}" if names else "it is empty"
        raise CommandError(f"no job {job} is in the history of this machine; {hint}")
    return matches


def _record_of(job: str, namespace: str) -> HistoryRecord:
    """The only job of that name. Raises CommandError when there are several, or none."""
    matches = _records_of(job, namespace)
    if len(matches) > 1:
        ids = ", ".join(f"{match.id} ({format_age(time.time() - match.started)} ago)" for match in matches[:5])
        text = f"{matches[0].name} is the name of {len(matches)} jobs, write the id of one: {ids}"
        raise CommandError(text, INVALID)
    return matches[0]


def _unique_records(jobs: Sequence[str], namespace: str) -> list[HistoryRecord]:
    """The records of these jobs, each once. Raises CommandError when a name has none or several."""
    return list({record.folder: record for record in (_record_of(job, namespace) for job in jobs)}.values())


def _list(namespace: str, limit: int | None, form: str, delete: bool) -> None:
    if delete:
        raise CommandError("--delete needs a JOB: a name, KIND/NAME or an id", INVALID)
    records = [record for record in read_records(history_folder()) if namespace in ("", record.namespace)]
    _print(records[:limit], form, False)


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
    """A row per job, after the header. WHERE is `run`, or the name of the background cluster. There is a column KEPT
    when the user keeps a job."""
    from trainyard.cli.output.record_lines import took

    with_kept = any(record.is_kept for record in jobs)
    head = ["ID", "JOB", "KIND", "AGE", "TOOK", "RESULT", "RESTARTS", "WHERE", *(["KEPT"] if with_kept else [])]
    rows = [[*head, *(["FOLDER", "WHY"] if wide else [])]]
    for record in jobs:
        name = record.name if record.namespace == "default" else f"{record.namespace}/{record.name}"
        row = [record.id, name, record.kind or "?", format_age(now - record.started), took(record, now)]
        row += [record.result or "running", str(record.data.get("restarts") or 0), record.text("where")]
        row += [("kept" if record.is_kept else "")] if with_kept else []
        more = [with_tilde(record.folder), " ".join(record.text("message").split())]
        rows.append([*row, *(more if wide else [])])
    return rows


def _show(matches: list[HistoryRecord]) -> None:
    from trainyard.cli.output.record_lines import record_lines

    print_output("\n".join(record_lines(matches[0], time.time(), terminal_width())))
    if len(matches) > 1:
        earlier_ids = ", ".join(f"{match.id} ({format_age(time.time() - match.started)} ago)" for match in matches[1:4])
        note(f"{len(matches) - 1} more of that name: {earlier_ids}{', ...' if len(matches) > 4 else ''}")


def _remove(records: Sequence[HistoryRecord]) -> None:
    """Remove all of them, or none if one may not be removed."""
    from trainyard.app.history.retention import remove_record

    for record in records:
        if is_recorded(record.folder):
            raise CommandError(
                f"{record.name} still runs (cluster: {record.text('where')}); its history can be deleted afterwards"
            )
        if record.is_kept:
            raise CommandError(f"{record.name} is kept; release it first: trainyard history keep --undo {record.id}")
    for record in records:
        remove_record(record.folder)
        note(f"{record.name} ({record.id}) is deleted from the history.")
        if record.logs.parent != record.folder:
            note(f"Its logs stay where --logs-dir put them: {with_tilde(record.logs)}")


def _keep(records: Sequence[HistoryRecord], kept: bool) -> None:
    from trainyard.app.history.retention import keep as keep_record

    extent = "whatever the limits of the history" if kept else "as long as the limits of the history allow"
    for record in records:
        keep_record(record, kept)
        note(f"{record.name} ({record.id}) is kept {extent}.")
