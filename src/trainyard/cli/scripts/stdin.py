"""Whether a program would read the stdin of `trainyard run`, which pods do not get."""

from __future__ import annotations

import os
import re
import select
import stat

from trainyard.cli.scripts.program import WorkerProgram

_READS = re.compile(r"\bstdin\b|\binput\(|\bfileinput\b")


def stdin_note(program: WorkerProgram, descriptor: int = 0) -> str:
    """The line for a program that would find input there; "" if there is none, or if its source does not read it."""
    text = program.source.read_text(errors="replace") if program.source else ""
    if (program.source and not _READS.search(text)) or not has_input(descriptor):
        return ""
    return f"{program.label} does not get the input of this command: its stdin is empty; name a file as its argument"


def has_input(descriptor: int) -> bool:
    """Whether the descriptor is a file with unread content, or a pipe with data in it: never a terminal."""
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return os.lseek(descriptor, 0, os.SEEK_CUR) < status.st_size
    except OSError:  # closed
        return False
    if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))
