"""`trainyard lint FILE...`: print every problem of manifests with its place and its fix. Offline."""

from __future__ import annotations

import sys

import click

from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.scripts import local_image
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def lint(files: tuple[str, ...]) -> None:
    """Check manifests. Exit code 0, or 2 when there is a problem; warnings and notes do not count.

    A note names a field that has an effect on a cluster, and none on one machine.
    """
    try:
        documents = manifests.load(files)
        jobs = manifests.jobs_of(documents)
    except ManifestError as error:
        note_problems(error.problems)
        sys.exit(2)
    problems: list[Problem] = []
    warnings = notes = 0
    for document, kind in jobs:
        job_problems = manifests.admit(document, kind)[1]
        job_problems += [manifests.with_place(document, problem) for problem in local_image.problems(document.obj)]
        problems += job_problems
        for warning in () if job_problems else kinds.warnings(kind, document.obj):
            note(f"{document.location(warning.path)}: warning: {warning}")
            warnings += 1
        for remark in () if job_problems else kinds.notes(kind, document.obj):
            note(f"{document.location(remark.path)}: note: {remark}")
            notes += 1
    note_problems(problems)
    if problems:
        sys.exit(2)
    notes_text = f", {_count(notes, 'note')}" if notes else ""
    click.echo(f"{_count(len(jobs), 'job')}, no problem, {_count(warnings, 'warning')}{notes_text}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
