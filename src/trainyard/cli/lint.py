"""`trainyard lint FILE...`: every problem with its place, what is wrong and what to write. Offline."""

from __future__ import annotations

import sys

import click

from trainyard import kinds
from trainyard.cli import manifests
from trainyard.objects.manifest import ManifestError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def lint(files: tuple[str, ...]) -> None:
    """Check manifests. Exit code 0, or 2 when there is a problem; warnings do not count."""
    try:
        documents = manifests.load(files)
        jobs = manifests.jobs_of(documents)
    except ManifestError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        sys.exit(2)
    problems, warnings = [], 0
    for document, kind in jobs:
        found = manifests.admitted(document, kind)[1]
        problems += found
        for warning in () if found else kinds.warnings(kind, document.obj):
            click.echo(f"{document.where}: warning: {warning}", err=True)
            warnings += 1
    for problem in problems:
        click.echo(str(problem), err=True)
    if problems:
        sys.exit(2)
    click.echo(f"{_count(len(jobs), 'job')}, no problem, {_count(warnings, 'warning')}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
