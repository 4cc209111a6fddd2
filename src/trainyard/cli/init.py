"""`trainyard init [SCRIPT]`: write a manifest for a script, beside it, with a comment for each field.

An existing file is never overwritten.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from trainyard import kinds
from trainyard.cli.command import manifests, options
from trainyard.cli.command.codes import INVALID
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.scripts.command_line import ProgramArguments, ScriptCommand, check_manifests, program_arguments
from trainyard.cli.scripts.job_maker import create_file, make_job, misplaced_option
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

USUAL = ("train.py", "main.py")


class InitCommand(ScriptCommand):
    """A script command whose usage line lists the forms of `init`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The arguments in the usage line."""
        return ["[OPTIONS]", "[SCRIPT [ARGS]... | -m MODULE [ARGS]... | -- COMMAND...]"]


@click.command(cls=InitCommand)
@click.argument("files", nargs=-1, metavar="[SCRIPT] [ARGS]...")
@click.option("-m", "module", metavar="MODULE", help="Module, as for `python -m`; the arguments after it are its own.")
@options.script
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="DIR[:PATH]",
    help="Directory of this machine, and its path in the pods. Repeatable.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="File for the manifest; - is stdout.  [default: SCRIPT with .yaml]"
)
@click.pass_context
def init(ctx: click.Context, /, files: tuple[str, ...], output: str | None, **params: Any) -> None:
    """Write a manifest for a script, with a comment for each field and what to change for a cluster.

    \b
    SCRIPT defaults to train.py, main.py, or the only .py file of the directory.
    The arguments after SCRIPT are its own:
      trainyard init --workers 4 train.py --epochs 3
      trainyard run train.yaml
    """
    try:
        program = program_arguments(ctx) or _default_script(files)
        manifest = make_job(program, params)
        kind = kinds.kind_of(manifest.job)
        if kind and (problems := manifests.admit(manifest.document, kind)[1]):
            raise ManifestError(problems)
        folder = manifest.program.directory if program.form == "script" else Path()
        file = Path(output) if output else folder / f"{manifest.job['metadata']['name']}.yaml"
        if program.form == "script" and not output:
            file = Path(program.target).with_suffix(".yaml")
        text = manifest.for_directory(Path(os.path.abspath(file)).parent).manifest_yaml(file)
        if manifest.note:
            note(manifest.note)
        for warning in manifest.warnings:
            note(warning)
        if option := misplaced_option(program, manifest.program):
            note(
                f"{option} stands behind {program.target}, so the script gets it; trainyard's own options stand before"
            )
        if output == "-":
            click.echo(text, nl=False)
            return
        create_file(file, text)
    except ManifestError as error:
        note_problems(error.problems)
        sys.exit(INVALID)
    click.echo(f"{file} written; next: trainyard run {file}")


def _default_script(files: tuple[str, ...]) -> ProgramArguments:
    """The default script: train.py, main.py, or the only .py file of the folder. Raises ManifestError."""
    if files:
        check_manifests(files)
        raise ManifestError([Problem(files[0], "is a manifest already; name a script, -m MODULE or -- COMMAND")])
    scripts = sorted(path.name for path in Path().glob("*.py"))
    for name in (*USUAL, *(scripts if len(scripts) == 1 else ())):
        if name in scripts:
            return ProgramArguments("script", name, ())
    candidates = f"there are {', '.join(scripts[:6])}" if scripts else "there is no .py file"
    raise ManifestError([Problem("init", f"which script? In this folder {candidates}; write trainyard init SCRIPT")])
