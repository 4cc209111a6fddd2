"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

F = TypeVar("F", bound=Callable[..., Any])


def _agree(context: click.Context, option: click.Parameter, given: bool) -> None:
    """The consent that the images' environments ask for; the variable is for scripts."""
    if given:
        os.environ["TRAINYARD_YES"] = "1"


_RUNNER = (
    click.option("--network", type=click.Choice(["auto", "namespace", "shared"]), default="auto", show_default=True),
    click.option(
        "--images", multiple=True, metavar="FILE", help="An image catalogue of your own; before the shipped one."
    ),
    click.option("--mount", "mounts", multiple=True, metavar="CLAIM=DIR", help="A folder for a PersistentVolumeClaim."),
    click.option("--cache", metavar="DIR", help="Where environments for images are kept."),
    click.option(
        "--yes", is_flag=True, expose_value=False, callback=_agree, help="Agree to downloads of more than a gigabyte."
    ),
)
_MACHINE = (
    *_RUNNER,
    click.option(
        "--controller-config-file", "config", metavar="FILE", help="The administrator's config (accelerators)."
    ),
)
_CLUSTER = (
    click.option(
        "--kubeconfig", metavar="FILE", default="", help="Which cluster.  [default: $KUBECONFIG, else `up`'s]"
    ),
    click.option("--context", metavar="NAME", default="", help="Which context of it.  [default: the current one]"),
    click.option("-n", "--namespace", metavar="NAME", default="", help="Which namespace.  [default: the context's]"),
)


def machine(command: F) -> F:
    """How a cluster on this machine is made: for `run` and `up`."""
    return _all(_MACHINE, command)


def runner(command: F) -> F:
    """How pods become processes: for `node`, too."""
    return _all(_RUNNER, command)


def cluster(command: F) -> F:
    """Which cluster, and which namespace: for every word about jobs."""
    return _all(_CLUSTER, command)


def _all(options: tuple[Callable[[F], F], ...], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def path(text: str | None) -> Path | None:
    return Path(text) if text else None


def claim(text: str) -> tuple[str, Path]:
    """CLAIM=DIR. The folder must be there: a wrong path must not become an empty data set."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise ManifestError([Problem("--mount", f"{text!r} is not CLAIM=DIR; write a claim's name, '=' and a folder")])
    if not Path(folder).is_dir():
        raise ManifestError([Problem("--mount", f"{folder} is not a folder; make it, or name one that is there")])
    return name, Path(folder).absolute()
