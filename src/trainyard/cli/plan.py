"""`trainyard plan FILE...`: print what the operator would do with these jobs and these observed children. Offline."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainyard.app.config import ConfigError
from trainyard.app.config import read_config as read_config
from trainyard.cli import offline
from trainyard.cli.command import manifests
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.output.printing import as_yaml
from trainyard.cli.scripts.machine_devices import lacking_devices
from trainyard.objects import Problem, encode, name_of, parse_time
from trainyard.objects.manifest import Document, ManifestError
from trainyard.objects.structs import replace


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--now", "now_text", metavar="TIME", help="Time of the plan, RFC 3339.  [default: now]")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Config file of the operator (accelerators).",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
@click.option(
    "--apply", is_flag=True, help="Print the objects after the plan is applied, as a List to edit and plan again."
)
def plan(files: tuple[str, ...], now_text: str | None, config_file: Path | None, output: str, apply: bool) -> None:
    """Print what the operator would create, change and delete, without a cluster.

    FILE... contain jobs and, as `kubectl get -o yaml` prints them, the pods and other objects that exist already. Exit
    code 2 if a manifest is invalid.

    Example: trainyard plan examples/tf_job.yaml
    """
    try:
        world = read_world(files, _parse_now(now_text), config_file)
        for job, kind in world.jobs:
            for problem in lacking_devices(kind, job):
                note(f"warning: {job['kind']} {name_of(job)}: {problem}")
        result: Any = (
            offline.apply_plans(world)
            if apply
            else [offline.plan_as_json(world, job, kind) for job, kind in world.jobs]
        )
    except (ManifestError, ConfigError) as error:
        note_problems(error.problems)
        sys.exit(2)
    if output == "json":
        click.echo(encode(result))
    else:
        documents = [result] if apply else result
        click.echo("---\n".join(as_yaml(document) for document in documents), nl=False)


def _parse_now(text: str | None) -> float:
    if text is None:
        return time.time()
    now = parse_time(text)
    if now is None:
        raise ManifestError([Problem("--now", f"{text!r} is not a time; write one like 2017-10-20T22:27:38Z")])
    return now


def read_world(files: tuple[str, ...], now: float, config_file: Path | None) -> offline.OfflineCluster:
    """The jobs and the observed objects of these files. Raises ManifestError and ConfigError."""
    config = replace(read_config(config_file, lambda text: note(f"warning: {text}")), new_ssh_key=None)
    documents = manifests.load(files)
    jobs, problems = [], []
    for document, kind in manifests.jobs_of(documents):
        defaulted, job_problems = manifests.admit(document, kind)
        stored = offline.is_stored(document.obj)
        jobs.append((document.obj if job_problems and stored else defaulted, kind))
        problems += [] if stored else job_problems
    others = [document for document in documents if document.kind is None]
    problems += _shape_problems(others)
    if problems:
        raise ManifestError(manifests.by_line(problems, files))
    return offline.OfflineCluster(jobs, [document.obj for document in others], config, now)


def _shape_problems(documents: Sequence[Document]) -> list[Problem]:
    """A problem for each object that lacks the shape of an API object."""
    problems = []
    for document in documents:
        try:
            offline.parse_child(document.obj)
        except ValueError as error:
            problems.append(manifests.with_place(document, Problem("metadata", str(error))))
    return problems
