"""The output of processes that a launcher (torchrun) starts, told from the launcher's own.

A launcher prints a long traceback of its own after that of the process that failed, and a summary that may name a
process which only lost its peers. So the cause is read from the tracebacks of the processes:
- A traceback of the launcher is not the cause while one of its processes has one.
- An exception of a process that lost its peers is not the cause while another process has a different one.
- A process that Python ends because of an exception has exit code 1: where the launcher reports other codes only, a
  traceback in the output was caught, and is not the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.core.diagnosis import LauncherOutput
from trainyard.views.diagnosis.tracebacks import (
    Traceback,
    UncaughtException,
    is_header,
    is_launcher_exception,
    tracebacks,
)

UNCAUGHT_EXIT_CODE = "1"  # of a Python process that an exception ends


def process_failure(lines: Sequence[str], launcher: LauncherOutput | None) -> Traceback | None:
    """The traceback that ended a process of the launcher: the last one that tells more than the loss of a peer; else
    the last one. None where only the launcher has tracebacks."""
    failures = _process_tracebacks(lines, launcher)
    return next(
        (failure for failure in reversed(failures) if not _lost_peer(failure.exception, launcher)),
        failures[-1] if failures else None,
    )


def is_consequence(lines: Sequence[str], launcher: LauncherOutput | None) -> bool:
    """True when the output tells only that peers ended, or that the launcher was stopped."""
    if launcher is not None and launcher.killed and re.search(launcher.killed, "\n".join(lines)):
        return False
    failure = process_failure(lines, launcher)
    if launcher is not None and failure is None:
        failure = next(iter(reversed(tracebacks(lines))), None)
    if launcher is not None and failure is None:
        return has_aborted(lines, launcher)
    return failure is not None and _lost_peer(failure.exception, launcher)


def has_aborted(lines: Sequence[str], launcher: LauncherOutput) -> bool:
    """Whether the launcher ended itself, with SIGABRT, because its processes did not end together."""
    return bool(launcher.aborted) and any(re.search(launcher.aborted, line) for line in lines)


def process_lines(lines: Sequence[str], launcher: LauncherOutput | None) -> tuple[str, ...]:
    """The lines without those of the launcher; after the traceback of the process that failed there are none.

    All lines where no process printed any."""
    if launcher is None:
        return tuple(lines)
    launcher_lines = {
        index
        for traceback in tracebacks(lines)
        if _is_launcher(traceback, launcher)
        for index in range(traceback.start, traceback.end + 1)
    }
    failure = process_failure(lines, launcher)
    end = len(lines)
    if failure is not None:
        following = range(failure.end + 1, len(lines))
        end = next(
            (index for index in following if is_header(lines[index]) or is_launcher_line(lines[index], launcher)), end
        )
    kept = [
        line
        for index, line in enumerate(lines[:end])
        if index not in launcher_lines and not is_launcher_line(line, launcher)
    ]
    return tuple(kept or lines)


def _process_tracebacks(lines: Sequence[str], launcher: LauncherOutput | None) -> list[Traceback]:
    if launcher is not None:
        exit_codes = {match[1] for line in lines if (match := re.search(launcher.exit_code, line))}
        if exit_codes and UNCAUGHT_EXIT_CODE not in exit_codes:
            return []
    return [traceback for traceback in tracebacks(lines) if not _is_launcher(traceback, launcher)]


def _is_launcher(traceback: Traceback, launcher: LauncherOutput | None) -> bool:
    if is_launcher_exception(traceback.exception):
        return True
    return launcher is not None and any(re.search(launcher.files, file) for file in traceback.files)


def _lost_peer(exception: UncaughtException, launcher: LauncherOutput | None) -> bool:
    return launcher is not None and bool(re.search(launcher.lost_peer, f"{exception.kind}: {exception.message}"))


def is_launcher_line(line: str, launcher: LauncherOutput) -> bool:
    """Whether a line is output of the launcher (torchrun, mpiexec), not of the program."""
    return bool(re.search(launcher.lines, line))
