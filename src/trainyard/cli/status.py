"""`trainyard status`: is the background cluster up, since when, where are its logs, what does it run."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import click

from trainyard.app.background import Background, BackgroundError, known, names
from trainyard.cli.codes import CANNOT, INTERRUPTED
from trainyard.objects import parse_time

ASKING = 5.0
Lines = list[tuple[str, Any]]


@click.command()
@click.option("--name", help="Which one. Without it: the one that there is, or all of them, a line each.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="For programs.")
def status(name: str | None, output: str | None) -> None:
    """Say whether the cluster of `trainyard up` is up. Exit code 0 when it is, or one of several, 3 when not.

    Example: trainyard status -o json
    """
    try:
        found = [Background(one) for one in ([name] if name is not None else names() or ["default"])]
        if len(found) > 1:
            up = _several(found, output)
        else:
            facts = found[0].facts()
            up = facts is not None
            _say(_up(found[0], facts) if facts is not None else _not_up(found[0]), output)
    except BackgroundError as error:
        click.echo(str(error), err=True)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0 if up else CANNOT)


def _say(lines: Lines, output: str | None) -> None:
    if output:
        click.echo(json.dumps(_words(lines), indent=2))
        return
    width = max(len(key) for key, _ in lines)
    for key, value in lines:
        each = value if isinstance(value, list) else [value]
        for at, text in enumerate(each):
            click.echo(f"{key if at == 0 else '':{width}}  {text}")


def _words(lines: Lines) -> dict[str, Any]:
    return {key.lower().replace(" ", "_"): value for key, value in lines}


def _several(clusters: list[Background], output: str | None) -> bool:
    """A line for each, the ones that are up first. Is any?"""
    from trainyard.cli.printing import aligned

    told = [(one, one.facts()) for one in clusters]
    told.sort(key=lambda pair: pair[1] is None)
    if output:
        every = [_up(one, facts) if facts is not None else _not_up(one) for one, facts in told]
        click.echo(
            json.dumps([{"name": one.name, **_words(lines)} for (one, _), lines in zip(told, every, strict=True)])
        )
    else:
        rows = [["NAME", "STATE", "SINCE", "KUBECONFIG"]]
        for one, facts in told:
            state = "up" if facts is not None else str(_not_up(one)[0][1])
            rows.append([one.name, state, str((facts or {}).get("since", "-")), str(one.kubeconfig)])
        click.echo("\n".join(aligned(rows)))
    return any(facts is not None for _, facts in told)


def _up(cluster: Background, facts: dict[str, Any]) -> Lines:
    from trainyard.cli.standing import counted, jobs_of
    from trainyard.cli.view import age

    jobs = asyncio.run(jobs_of(cluster, ASKING))
    since = parse_time(facts.get("since"))
    stands = f"{facts.get('since')} ({age(time.time() - since)})" if since is not None else "unknown"
    lines: Lines = [
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
    if merged := cluster.merged():
        lines.insert(5, ("Context", [f"{cluster.context} in {path}" for path in merged]))
    return lines


def _not_up(cluster: Background) -> Lines:
    killed = (cluster.folder / "cluster.json").exists()
    state = "on its way up or down" if cluster.alive else "not up: its daemon was killed" if killed else "not up"
    if not cluster.folder.is_dir() and cluster.name != "default":
        state = f"not up: there is no cluster {cluster.name}{known(cluster.name)}"
    lines: Lines = [("State", state)]
    if cluster.log.exists():
        lines.append(("Log", str(cluster.log)))
    if cluster.state.exists():
        lines.append(("It keeps", str(cluster.state)))
        lines.append(("Delete it", cluster.word("down --delete")))
    lines.append(("Start it", cluster.word("up")))
    return lines
