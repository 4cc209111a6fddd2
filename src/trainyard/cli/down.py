"""`trainyard down`: stop the background cluster, and say what goes with it."""

from __future__ import annotations

import asyncio
import sys

import click

from trainyard.app.background import Background, BackgroundError
from trainyard.cli.codes import INTERRUPTED
from trainyard.cli.standing import jobs_of, words_of

ASKING = 5.0  # seconds for a cluster that is about to go to say what it has


@click.command()
@click.option("--name", default="default", show_default=True, help="Which one.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=45.0,
    show_default=True,
    help="Seconds until it is stopped by force.",
)
def down(name: str, grace: float) -> None:
    """Stop the cluster of `trainyard up`: pods end within their grace period, then everything else. Nothing stays.

    Example: trainyard down --grace 5. One that is not up is no error.
    """
    try:
        cluster = Background(name)
        lost = _lost(cluster)
        if not cluster.stop(grace, lambda text: click.echo(text, err=True)):
            click.echo(f"The cluster {name} is not up." if name != "default" else "The cluster is not up.")
            return
        click.echo("The cluster is down." if name == "default" else f"The cluster {name} is down.")
        if lost:
            click.echo(f"Its jobs lived in memory and went with it: {', '.join(lost)}.", err=True)
    except BackgroundError as error:
        click.echo(str(error), err=True)
        sys.exit(error.code)
    except KeyboardInterrupt:
        click.echo(f"It goes on ending; see: {cluster.word('status')}", err=True)
        sys.exit(INTERRUPTED)


def _lost(cluster: Background) -> list[str]:
    """The jobs that go with it."""
    if cluster.facts() is None:
        return []
    found = asyncio.run(jobs_of(cluster, ASKING))
    return words_of(found) if found else []
