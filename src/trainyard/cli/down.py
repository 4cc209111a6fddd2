"""`trainyard down`: stop the background cluster. What it has stays, unless it is to be deleted; then it is said."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from trainyard.app.background import Background, BackgroundError, clause_of_clusters
from trainyard.cli.codes import INTERRUPTED
from trainyard.cli.layout import note
from trainyard.cli.standing import jobs_of, words_of

if TYPE_CHECKING:
    from pathlib import Path

ASKING = 5.0  # seconds for a cluster that is about to go to say what it has
MEGABYTE = 1_000_000


@click.command()
@click.option("--name", default="default", show_default=True, help="Which one.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=45.0,
    show_default=True,
    help="Seconds until it is stopped by force.",
)
@click.option("--delete", is_flag=True, help="Remove it for good: jobs, logs, volumes, its kubeconfig context.")
def down(name: str, grace: float, delete: bool) -> None:
    """Stop the cluster of `trainyard up`: pods end within their grace period, then everything else. What it has stays
    on disk, and the next `trainyard up` goes on with it.

    Example: trainyard down --grace 5. One that is not up is no error.
    """
    try:
        cluster = Background(name)
        which = "The cluster" if name == "default" else f"The cluster {name}"
        if not cluster.folder.is_dir() and name != "default":
            click.echo(f"There is no cluster {name}{clause_of_clusters(name)}.")
            return
        held = _held(cluster)
        was = cluster.stop(grace, note)
        click.echo(f"{which} is down." if was else f"{which} is not up.")
        if delete:
            _delete(cluster, which)
        elif was and held:
            note(f"It keeps its jobs: {', '.join(held)}. Go on: {cluster.word('up')}")
    except BackgroundError as error:
        note(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        note(f"It goes on ending; see: {cluster.word('status')}")
        sys.exit(INTERRUPTED)


def _held(cluster: Background) -> list[str]:
    """The jobs that it has."""
    if cluster.facts() is None:
        return []
    found = asyncio.run(jobs_of(cluster, ASKING))
    return words_of(found) if found else []


def _delete(cluster: Background, which: str) -> None:
    from trainyard.app import merging
    from trainyard.app.kubeconfig import KubeconfigError

    going = _going(cluster)
    for path in cluster.merged_kubeconfigs():
        try:
            if merging.remove(path, cluster.context):
                going.append(f"the context {cluster.context} in {path}")
        except KubeconfigError as error:
            note(f"{error}; take the context {cluster.context} out yourself")
    if not cluster.delete(note):
        click.echo(f"{which} has nothing to delete.")
        return
    click.echo(f"{which} is deleted.")
    for line in going:
        note(f"Gone: {line}")


def _going(cluster: Background) -> list[str]:
    """What goes with it, each a line."""
    from trainyard.app.state import jobs_in
    from trainyard.server import DiskError

    if not cluster.folder.is_dir():
        return []
    going = []
    if cluster.state.is_dir():
        try:
            if jobs := jobs_in(cluster.state):
                count = f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}"
                going.append(f"{count}: {', '.join(jobs[:6])}{', ...' if len(jobs) > 6 else ''}")
        except (DiskError, OSError) as error:
            going.append(f"a state that cannot be read ({str(error).partition(';')[0]})")
    node = cluster.state / "node"
    for path, what in ((node / "pods", "logs and files of pods"), (node / "claims", "volumes of claims")):
        if size := _size(path):
            going.append(f"{what}, {size / MEGABYTE:.1f} MB")
    for path in sorted((cluster.folder / "aside").glob("*")):
        going.append(f"what was put aside in {path.name}, {_size(path) / MEGABYTE:.1f} MB")
    return [*going, str(cluster.folder)]


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
