"""`trainyard down`: stop the background cluster. Its state stays on disk; --delete removes it and lists what is
gone."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from trainyard.app.background.cluster_folders import BackgroundError, clause_of_clusters
from trainyard.app.background.clusters import Background
from trainyard.cli.command.cluster_jobs import job_texts, list_cluster_jobs
from trainyard.cli.command.codes import INTERRUPTED
from trainyard.cli.output.layout import note

if TYPE_CHECKING:
    from pathlib import Path

LIST_TIMEOUT = 5.0  # timeout in seconds for the list of the cluster's jobs before it is stopped
MEGABYTE = 1_000_000


@click.command()
@click.option("--name", metavar="NAME", default="default", show_default=True, help="Name of the cluster.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=45.0,
    show_default=True,
    help="Time until the cluster is killed.",
)
@click.option("--delete", is_flag=True, help="Delete the cluster: jobs, logs, volumes, kubeconfig context.")
def down(name: str, grace: float, delete: bool) -> None:
    """Stop the local cluster of `trainyard up`.

    Pods end within their grace period. Jobs and data are kept for the next `trainyard up`. A cluster that is not up is
    no error.

    Example: trainyard down --grace 5
    """
    try:
        cluster = Background(name)
        cluster_text = "The cluster" if name == "default" else f"The cluster {name}"
        if not cluster.folder.is_dir() and name != "default":
            click.echo(f"There is no cluster {name}{clause_of_clusters(name)}.")
            return
        job_texts, was_killed = _job_texts(cluster), cluster.daemon_killed
        was_up = cluster.stop(grace, note)
        hint = ": its daemon was killed" if was_killed else clause_of_clusters(name) if name == "default" else ""
        click.echo(f"{cluster_text} is down." if was_up else f"{cluster_text} is not up{hint}.")
        if delete:
            _delete(cluster, cluster_text)
        elif was_killed:
            note(f"Its jobs and files are kept. Go on: {cluster.word('up')}")
        elif was_up and job_texts:
            note(f"It keeps its jobs: {', '.join(job_texts)}. Go on: {cluster.word('up')}")
    except BackgroundError as error:
        note(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        note(f"The cluster {name} is still stopping; see: {cluster.word('status')}")
        sys.exit(INTERRUPTED)


def _job_texts(cluster: Background) -> list[str]:
    """The jobs of the cluster with their states, as text; [] when the cluster is down or does not answer."""
    if cluster.facts() is None:
        return []
    jobs = asyncio.run(list_cluster_jobs(cluster, LIST_TIMEOUT))
    return job_texts(jobs) if jobs else []


def _delete(cluster: Background, cluster_text: str) -> None:
    from trainyard.app import kubeconfig_merge
    from trainyard.app.kubeconfig import KubeconfigError
    from trainyard.page.running_servers import forget_server

    deleted_items = _items_to_delete(cluster)
    for path in cluster.merged_kubeconfigs():
        try:
            if kubeconfig_merge.remove(path, cluster.context):
                deleted_items.append(f"the context {cluster.context} in {path}")
        except KubeconfigError as error:
            note(f"{error}; remove the context {cluster.context} with kubectl config delete-context")
    if not cluster.delete(note):
        click.echo(f"{cluster_text} has nothing to delete.")
        return
    forget_server(cluster.name)
    click.echo(f"{cluster_text} is deleted.")
    for item in deleted_items:
        note(f"Gone: {item}")


def _items_to_delete(cluster: Background) -> list[str]:
    """One line for each part of the cluster's state that --delete removes."""
    from trainyard.app.background.state import jobs_in
    from trainyard.objects.numbers import count_text
    from trainyard.server import DiskError

    if not cluster.folder.is_dir():
        return []
    items = []
    if cluster.state.is_dir():
        try:
            if jobs := jobs_in(cluster.state):
                count = count_text(len(jobs), "job")
                items.append(f"{count}: {', '.join(jobs[:6])}{', ...' if len(jobs) > 6 else ''}")
        except (DiskError, OSError) as error:
            items.append(f"a state that cannot be read ({str(error).partition(';')[0]})")
    node = cluster.state / "node"
    for path, content in ((node / "pods", "logs and files of pods"), (node / "claims", "volumes of claims")):
        if size := _folder_size(path):
            items.append(f"{content}, {size / MEGABYTE:.1f} MB")
    for path in sorted((cluster.folder / "aside").glob("*")):
        items.append(f"what was put aside in {path.name}, {_folder_size(path) / MEGABYTE:.1f} MB")
    return [*items, str(cluster.folder)]


def _folder_size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
