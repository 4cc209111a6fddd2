"""The logs of a deleted job: its log files in the history, printed as `trainyard logs` prints those of the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainyard.app.history.recorded_logs import LogFile, init_containers_of, log_files
from trainyard.app.history.records import INTERRUPTED, HistoryRecord, find_records, history_folder
from trainyard.app.job_files import open_file
from trainyard.cli.command.cluster_command import CommandError, note
from trainyard.cli.output.log_prefixes import log_prefix
from trainyard.cli.session.log_screen import with_screen
from trainyard.objects.log_files import pieces, tail_offset
from trainyard.views.durations import format_age

if TYPE_CHECKING:
    from trainyard.cli.output.screen import Screen
    from trainyard.cli.session.job_watch import LogSelection


SHOWN_NAMES = 8  # of replicas, in a message


def select_files(files: Sequence[LogFile], selection: LogSelection, attempt: int | None) -> list[LogFile]:
    """The files that the options of `trainyard logs` select: the newest run of each container of the newest pod of
    each replica, the run before it (-p), or all runs of an attempt."""
    files = [
        file
        for file in files
        if (not selection.role or file.role == selection.role.lower())
        and (selection.index is None or file.index == str(selection.index))
        and selection.container in ("", file.container)
        and attempt in (None, file.attempt)
    ]
    if attempt is not None:
        return files
    newest_runs = []
    for replica in dict.fromkeys(file.replica for file in files):
        replica_files = [file for file in files if file.replica == replica]
        newest = replica_files[-1].pod
        for container in dict.fromkeys(file.container for file in replica_files if file.pod == newest):
            runs = [file for file in replica_files if file.container == container]
            position = -2 if selection.previous else -1
            newest_runs += runs[position : position + 1 or None] if len(runs) >= -position else []
    return newest_runs


def print_recorded_logs(job: str, namespace: str, selection: LogSelection, attempt: int | None) -> bool:
    """Print the logs of the job with that name that was seen last, or of the job with that history id.

    False when there is none. Raises CommandError for an unknown role, index, container or attempt."""
    record = last_record(job, namespace)
    if record is None:
        return False
    files = log_files(record)
    _check_selection(record.name, selection, files)
    attempts = sorted({file.attempt for file in files})
    if attempt is not None and attempt not in attempts:
        attempts_text = ", ".join(map(str, attempts)) or "none"
        raise CommandError(f"{record.name} has no output of attempt {attempt} in the history; it has: {attempts_text}")
    shown = select_files(files, selection, attempt)
    if not shown:
        note(f"{record.name} has {'no run before the last one' if selection.previous else 'no output'} in the history")
    elif attempt is None and not selection.previous and (more := len(files) - len(shown)):
        note(f"The last run of each replica; {more} more: trainyard history {record.id}")
    init_containers = init_containers_of(record)
    prefixes = {file: _prefix(file, files, init_containers) for file in shown}
    main_prefixes = [prefixes[file] for file in shown if (file.pod, file.container) not in init_containers]
    asyncio.run(with_screen(lambda screen: _print_files(screen, prefixes, main_prefixes, selection)))
    return True


def _check_selection(name: str, selection: LogSelection, files: Sequence[LogFile]) -> None:
    """Raises CommandError for a role, an index or a container of which the history has no file."""
    if selection.role:
        by_role = [file for file in files if file.role == selection.role.lower()]
        _check_selected(name, f"role {selection.role}", by_role, [file.role for file in files])
        files = by_role
    if selection.index is not None:
        by_index = [file for file in files if file.index == str(selection.index)]
        _check_selected(name, f"replica with index {selection.index}", by_index, [file.replica for file in files])
        files = by_index
    if selection.container:
        by_container = [file for file in files if file.container == selection.container]
        _check_selected(name, f"container {selection.container}", by_container, [file.container for file in files])


def _check_selected(name: str, missing: str, selected: Sequence[LogFile], existing: Sequence[str]) -> None:
    if not selected:
        names = list(dict.fromkeys(existing))
        names_text = f"{', '.join(names[:SHOWN_NAMES])}{', ...' if len(names) > SHOWN_NAMES else ''}" or "none"
        raise CommandError(f"{name} has no {missing} in the history; it has: {names_text}")


def _prefix(file: LogFile, files: Sequence[LogFile], init_containers: set[tuple[str, str]]) -> str:
    """The prefix of the file's lines. `files`: those of all containers of the job."""
    names = {other.container for other in files if other.pod == file.pod}
    count = sum((file.pod, name) not in init_containers for name in names)
    return log_prefix(file.replica, file.container, (file.pod, file.container) in init_containers, count)


def last_record(job: str, namespace: str) -> HistoryRecord | None:
    """The record of the job with that name that was seen last, or of the job with that history id. None when there is
    none. Prints a note about the record to stderr. Raises BackgroundError when there is no home folder."""
    matches = find_records(history_folder(), job, namespace)
    if not matches:
        return None
    record = max(matches, key=lambda match: match.last_seen)
    note(_source_text(record, len(matches) - 1))
    return record


def _source_text(record: HistoryRecord, older: int) -> str:
    start_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started))
    is_kept = record.text("where") != "run" and not record.text("deleted")  # by its cluster, which may not be up
    ended = "the job has ended" if is_kept else "the job is gone"
    ended = "the job was interrupted" if record.result == INTERRUPTED else ended
    state = ended if record.result else "the job goes on"
    id_text = (
        f"its id is {record.id}, {older} more of that name: see `trainyard history {record.name}`, and write the id"
    )
    more = f"; {id_text}" if older else ""
    return f"From the history of {start_text} ({format_age(time.time() - record.started)} ago); {state}{more}."


async def _print_files(
    screen: Screen, prefixes: Mapping[LogFile, str], main_prefixes: Sequence[str], selection: LogSelection
) -> None:
    screen.align(main_prefixes)
    for file, prefix in prefixes.items():
        await _print_file(file, "" if selection.unprefixed else prefix, selection.tail, screen)


async def _print_file(file: LogFile, prefix: str, tail: int | None, screen: Screen) -> None:
    """Print a log file from its first line, or its last `tail` lines."""
    from trainyard.views.output_lines import OutputLineSplitter

    splitter = OutputLineSplitter()
    try:
        with open_file(file.path, file.path.parents[3]) as log:
            for piece in pieces(log, 0 if tail is None else tail_offset(log, tail)):
                for line in splitter.feed(piece):
                    screen.log(prefix, line)
                await screen.wait_for_space()
    except OSError as error:
        screen.note(f"{file.path}: {(error.strerror or str(error)).lower()}")
    for line in splitter.finish():
        screen.log(prefix, line)
