"""`trainyard up`: a local cluster in the background, ready when the command returns."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import click

from trainyard.app.background import Background, BackgroundError
from trainyard.cli import options
from trainyard.cli.codes import BAD, INTERRUPTED
from trainyard.objects.manifest import ManifestError


@click.command()
@click.option("--name", default="default", show_default=True, help="Which one: there may be several.")
@click.option("--no-operator", is_flag=True, hidden=True, help="For `trainyard operator`, which then serves it.")
@options.machine
def up(name: str, **words: Any) -> None:
    """Start a cluster on this machine that stays: `trainyard up`, `trainyard submit FILE`, `trainyard down`.

    stdout has the one line that a shell needs: eval "$(trainyard up)" makes kubectl work. A cluster that is up already
    stays as it is.
    """
    try:
        cluster = Background(name)
        fresh = cluster.start(_absolute(words), lambda text: click.echo(text, err=True))
        _report(cluster, fresh)
    except ManifestError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        sys.exit(BAD)
    except BackgroundError as error:
        click.echo(str(error), err=True)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _absolute(words: dict[str, Any]) -> dict[str, Any]:
    """What the daemon hears: it lives in another folder."""
    return {
        "network": words["network"],
        "images": [os.path.abspath(path) for path in words["images"]],
        "cache": os.path.abspath(words["cache"]) if words["cache"] else "",
        "config": os.path.abspath(words["config"]) if words["config"] else "",
        "mounts": {claim: str(place) for claim, place in map(options.claim, words["mounts"])},
        "operator": not words["no_operator"],
    }


def _report(cluster: Background, fresh: bool) -> None:
    facts = cluster.facts() or {}
    state = "is up" if fresh else f"is up already, since {facts.get('since', 'a moment ago')}"
    which = "The cluster" if cluster.name == "default" else f"The cluster {cluster.name}"
    click.echo(f"{which} {state} (network: {facts.get('network', 'unknown')}; log: {cluster.log}).", err=True)
    click.echo("For kubectl, and for words about this cluster where $KUBECONFIG names another:", err=True)
    click.echo(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    click.echo("Next: trainyard submit FILE, get, logs -f JOB, why JOB.", err=True)
    click.echo(f"Stop it: {cluster.word('down')}. Its jobs live in memory and go with it.", err=True)
