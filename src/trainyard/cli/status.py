"""`trainyard status`: is the background cluster up, since when, where are its logs, what does it run."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import click

from trainyard.app.background import Background, BackgroundError, names
from trainyard.cli.codes import CANNOT, INTERRUPTED
from trainyard.objects import parse_time

ASKING = 5.0


@click.command()
@click.option("--name", default="default", show_default=True, help="Which one.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="For programs.")
def status(name: str, output: str | None) -> None:
    """Say whether the cluster of `trainyard up` is up. Exit code 0 when it is, 3 when it is not.

    Example: trainyard status -o json
    """
    try:
        cluster = Background(name)
        facts = cluster.facts()
        lines = _up(cluster, facts) if facts is not None else _not_up(cluster)
    except BackgroundError as error:
        click.echo(str(error), err=True)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if output:
        click.echo(json.dumps({key.lower().replace(" ", "_"): value for key, value in lines}, indent=2))
    else:
        width = max(len(key) for key, _ in lines)
        for key, value in lines:
            each = value if isinstance(value, list) else [value]
            for at, text in enumerate(each):
                click.echo(f"{key if at == 0 else '':{width}}  {text}")
    sys.exit(0 if facts is not None else CANNOT)


def _up(cluster: Background, facts: dict[str, Any]) -> list[tuple[str, Any]]:
    from trainyard.cli.standing import counted, jobs_of
    from trainyard.cli.view import age

    jobs = asyncio.run(jobs_of(cluster, ASKING))
    since = parse_time(facts.get("since"))
    stands = f"{facts.get('since')} ({age(time.time() - since)})" if since is not None else "unknown"
    return [
        ("State", "up" if jobs is not None else "up, but it does not answer"),
        ("Since", stands),
        ("Network", facts.get("network")),
        ("API server", facts.get("server")),
        ("Kubeconfig", str(cluster.kubeconfig)),
        ("Log", str(cluster.log)),
        ("Pods' files", facts.get("folder")),
        ("Process", facts.get("pid")),
        ("Jobs", "unknown" if jobs is None else counted(jobs) or "none"),
    ]


def _not_up(cluster: Background) -> list[tuple[str, Any]]:
    killed = (cluster.folder / "cluster.json").exists()
    state = "on its way up or down" if cluster.alive else "not up: its daemon was killed" if killed else "not up"
    lines: list[tuple[str, Any]] = [("State", state)]
    if cluster.log.exists():
        lines.append(("Log", str(cluster.log)))
    if others := [name for name in names() if name != cluster.name and Background(name).facts() is not None]:
        lines.append(("Others", f"{', '.join(others)} (--name)"))
    lines.append(("Start it", cluster.word("up")))
    return lines
