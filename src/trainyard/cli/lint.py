"""`trainyard lint FILE...`: print every problem of manifests with its place and its fix. Offline."""

from __future__ import annotations

import sys
from itertools import groupby

import click

from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.scripts import local_image
from trainyard.cli.scripts.machine_devices import lacking_devices


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def lint(files: tuple[str, ...]) -> None:
    """Check manifests for errors, without a cluster. - is standard input.

    Each problem is printed as file:line: field: text. Exit code 2 if there is one; warnings do not count, nor do notes,
    which name fields without an effect on one machine.

    Example: trainyard lint examples/tf_job.yaml
    """
    files = tuple(dict.fromkeys(files))
    documents, problems = manifests.read_files(files)
    problems += manifests.kind_problems(documents, job_needed=not problems)
    jobs = [(document, document.kind) for document in documents if document.kind]
    # Of each file by itself: files of several examples, which nobody submits together, may be linted in one call.
    for _, file_documents in groupby(documents, lambda document: document.source):
        problems += manifests.duplicates([*file_documents])
    warnings = notes = 0
    for document, kind in jobs:
        job_problems = manifests.admit(document, kind)[1]
        job_problems += [manifests.with_place(document, problem) for problem in local_image.problems(document.obj)]
        problems += job_problems
        warned = () if job_problems else (*manifests.warnings(document.obj, kind), *lacking_devices(kind, document.obj))
        for warning in warned:
            note(manifests.remark(document, "warning", warning))
            warnings += 1
        remarks = [
            *manifests.server_fields_note(document.obj),
            *kinds.notes(kind, document.obj, manifests.may_give_out),
        ]
        for remark in () if job_problems else remarks:
            note(manifests.remark(document, "note", remark))
            notes += 1
    if problems:
        note_problems(manifests.by_line(problems, files))
        sys.exit(2)
    notes_text = f", {_count(notes, 'note')}" if notes else ""
    click.echo(f"{_count(len(jobs), 'job')}, no problem, {_count(warnings, 'warning')}{notes_text}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
