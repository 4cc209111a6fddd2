"""`trainyard run FILE...`: run jobs from start to end in a cluster inside this process; print their logs and results.

`trainyard run SCRIPT` first makes a manifest for the script (scripts/), and then runs it in the same way.

Exit codes: 0 every job succeeded, 1 a job failed or its success is in doubt, 2 a manifest or the command line is
invalid and no process was started, 3 the jobs cannot run on this machine, 124 --timeout has expired, 130 interrupted.
With several jobs the worst result decides.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard import kinds
from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.background.clusters import error_text
from trainyard.app.config import ConfigError
from trainyard.app.config import read_config as read_config
from trainyard.cli.command import manifests, options
from trainyard.cli.command.codes import INTERRUPTED, INVALID, SUCCEEDED, UNAVAILABLE
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.output.printing import as_json, as_yaml
from trainyard.cli.output.screen import Descriptors, Screen, live_on, wants_colour
from trainyard.cli.scripts.command_line import ScriptCommand, check_manifests, program_arguments
from trainyard.cli.scripts.job_maker import (
    SCRIPT_OPTIONS,
    ProgramJob,
    create_file,
    make_job,
    misplaced_option,
    unpassed_variables,
    unreachable_files,
)
from trainyard.cli.scripts.machine_devices import lacking_devices
from trainyard.cli.scripts.stdin import stdin_note
from trainyard.cli.session import submission
from trainyard.cli.session.working_directory import current
from trainyard.objects import Json
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.app.background.early_start import EarlyStart
    from trainyard.cli.command.signals import StopSignals

EPILOG = """\b
Exit codes:
  0    every job succeeded
  1    a job failed, or its success is in doubt
  2    a manifest or the command line is invalid; nothing was started
  3    cannot run on this machine (an image, disk space, the package index)
  124  --timeout has expired
  130  interrupted: Ctrl-C stops the pods gracefully, a second one kills them

\b
-o json and -o yaml print an array with the final job objects on stdout; logs
and the table go to stderr."""


class CannotStart(Exception):
    """No process or private folder can be created on this machine; the message has the reason."""


@click.command(epilog=EPILOG, cls=ScriptCommand)
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "-m", "module", metavar="MODULE", help="Run a module, as `python -m` does; the arguments after it are its own."
)
@options.script
@click.option(
    "-n", "--namespace", metavar="NAMESPACE", default="", help="Namespace of objects without one.  [default: default]"
)
@options.machine
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit; then the jobs are stopped.  [default: none]",
)
@click.option("--no-ui", is_flag=True, help="Do not serve the web page of `trainyard ui`.")
@click.option("--keep", is_flag=True, help="Keep the cluster up after the jobs have ended, until Ctrl-C.")
@click.option("--save", metavar="FILE", help="File for the manifest of the script; it must not exist.")
@click.option("--dry-run", is_flag=True, help="Print the manifest (-o yaml, json), and start nothing.")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format: print the final job objects on stdout."
)
@click.pass_context
def run(ctx: click.Context, /, files: tuple[str, ...], namespace: str, **params: Any) -> None:
    """Run manifests or a script on this machine, and print the logs of all replicas.

    Pods run as local processes. FILE... are manifests of jobs, and of the ConfigMaps, Secrets, Services and
    PersistentVolumeClaims that they need. Logs and the final table go to stdout, progress to stderr.

    \b
    A script needs no manifest; the arguments after it are its own:
      trainyard run train.py --epochs 3          a script
      trainyard run --workers 4 train.py         with four distributed workers
      trainyard run -m package.train --epochs 3  a module
      trainyard run -- ./prepare.sh data         any command
    For a script, --mount is DIR[:PATH]: a directory, and its path in the pods.

    """
    try:
        manifest = _make_manifest(ctx, files, params)
        if manifest is None and params["dry_run"]:
            _print(_all_objects(submission.read(files, namespace)), params["output"])
            return
        if manifest is not None and params["dry_run"]:
            _save_manifest(manifest, params)
            return
        with _start_early(params["network"]) as early:  # while the manifest is read
            manifest = _save_manifest(manifest, params) if manifest else None
            claims = {} if manifest else dict(map(options.parse_claim, params["mounts"]))
            documents = manifest.with_working_directory().documents if manifest else []
            submitted = submission.read(files, namespace, generated=documents)
            submitted.check_network(params["network"])
            _check_devices(submitted)
            code = asyncio.run(_run(early, submitted, params, claims))
    except (ManifestError, ConfigError) as error:
        note_problems(error.problems)
        code = INVALID
    except BackgroundError as error:
        note(str(error))
        code = error.code
    except CannotStart as error:
        note(f"cannot run here: {error}")
        code = UNAVAILABLE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _make_manifest(ctx: click.Context, files: tuple[str, ...], params: dict[str, Any]) -> ProgramJob | None:
    """The manifest for a script, or None if FILE... are manifests. Raises ManifestError, and click.UsageError if the
    command line has no argument."""
    program = program_arguments(ctx)
    if program is not None:
        if not current():
            raise click.UsageError("the current folder has been deleted; change to one that exists", ctx)
        manifest = make_job(program, params)
        if manifest.note:
            note(manifest.note)
        for text in manifest.warnings:
            note(text)
        if option := misplaced_option(program, manifest.program):
            note(
                f"{option} stands behind {program.target}, so the script gets it; trainyard's own options stand before"
            )
        for argument in unreachable_files(program, manifest.program, Path.cwd()):
            text = f"{program.target} runs in its own folder, {manifest.program.directory}, and there is no {argument}"
            note(f"{text}; write {shlex.quote(os.path.abspath(argument))}")
        if text := stdin_note(manifest.program):
            note(text)
        if names := unpassed_variables(manifest.program, params):
            flags = " ".join(f"--env {name}" for name in names)
            note(f"{program.target} reads {', '.join(names)} of this shell, but is not given it: write `{flags}`")
        return manifest
    if not files:
        raise click.UsageError("Missing a manifest, a script, -m MODULE or -- COMMAND.", ctx)
    check_manifests(files)
    options.forbid(ctx, [*SCRIPT_OPTIONS, "save"], "is for a script only; a manifest has fields for it")
    return None


def _save_manifest(manifest: ProgramJob, params: dict[str, Any]) -> ProgramJob | None:
    """Validate the manifest, write it for --save and print it for --dry-run. Returns None with --dry-run, else the
    manifest. Raises ManifestError."""
    kind = kinds.kind_of(manifest.job)
    if kind and (problems := manifests.admit(manifest.document, kind)[1]):
        raise ManifestError(problems)
    if params["save"]:
        file = Path(params["save"])
        create_file(file, manifest.for_directory(Path(os.path.abspath(file)).parent).manifest_yaml(file))
        note(f"{file} written")
    if not params["dry_run"]:
        return manifest
    _print(manifest.for_directory(Path.cwd()).objects, params["output"])
    return None


def _print(objects: list[Json], output: str | None) -> None:
    if output == "json":
        click.echo(as_json(objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}))
    else:
        click.echo("---\n".join(map(as_yaml, objects)), nl=False)


def _all_objects(submitted: submission.Submission) -> list[Json]:
    return [obj for _, obj in [*submitted.other_objects, *submitted.jobs]]


def _check_devices(submitted: submission.Submission) -> None:
    """Raises CannotStart for a job that asks for more GPUs than this machine has: its pods would wait for ever."""
    for kind, job in submitted.jobs:
        for problem in lacking_devices(kind, job):
            place = submitted.with_place(job, problem)
            raise CannotStart(f"{place.path}: {place.text}")


def _start_early(network: str) -> EarlyStart:
    from trainyard.app.background.early_start import EarlyStart

    try:
        return EarlyStart(network)
    except OSError as error:
        raise CannotStart(error_text(error)) from None


async def _run(
    early: EarlyStart, submitted: submission.Submission, params: dict[str, Any], claims: dict[str, Path]
) -> int:
    """Run the jobs; return the exit code. The slow imports are here, after the manifest has been validated."""
    from trainyard.app.history.record_index import HistoryOptions
    from trainyard.app.history.records import history_folder
    from trainyard.app.local import LocalClusterOptions
    from trainyard.cli.command.signals import StopSignals
    from trainyard.cli.session import session

    logs_dir, limits = options.logs_dir(params["logs_dir"]), options.history_limits()
    stop_signals = StopSignals()
    screen = _make_screen(params["output"] or "", stop_signals)
    logging.basicConfig(handlers=[_NoteHandler(screen)], level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    try:
        cluster_options = LocalClusterOptions(
            network=params["network"],
            images=tuple(map(Path, params["images"])),
            cache=options.path(params["cache"]),
            python=options.interpreter(params["python"]),
            mounts=claims,
            config=read_config(options.path(params["config"]), screen.note),
            say=screen.note,
            progress=screen.activity,
            working_directory=options.path(current()),
            history=HistoryOptions(history_folder(), "run", logs_dir, limits),
            # Other objects of the manifests (a Pod, a Deployment) may create jobs of any kind: serve all kinds then.
            served_first=None
            if submitted.other_objects or params["keep"]
            else frozenset(kind.gvk for kind, _ in submitted.jobs),
            early=early,
        )
        settings = session.Settings(params["timeout"], params["keep"], params["output"] or "", not params["no_ui"])
        code = await session.run(submitted, cluster_options, settings, screen, stop_signals)
    except session.CANNOT_RUN as error:
        screen.note(f"cannot run here: {error_text(error)}")
        code = UNAVAILABLE
    finally:
        await stop_signals.run_unless(stop_signals.second, screen.close())
        stop_signals.close()
    return UNAVAILABLE if code == SUCCEEDED and screen.output_error is not None else code


def _make_screen(output: str, stop_signals: StopSignals) -> Screen:
    stdout, stderr = 1, 2
    places = Descriptors(logs=stderr if output else stdout, result=stdout, notes=stderr)
    colour = wants_colour(os.isatty(places.logs), dict(os.environ))
    return Screen(places, colour, live_on(stderr), stop_signals.lose_reader)


class _NoteHandler(logging.Handler):
    """A log handler that writes records as notes of the screen, so that they do not break the progress line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note(self.format(record))
