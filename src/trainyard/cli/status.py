"""`trainyard status`: whether the background cluster is up, since when, where its log is, and its jobs."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import click
import msgspec

from trainyard.app.background.cluster_folders import BackgroundError, clause_of_clusters, cluster_names
from trainyard.app.background.clusters import Background
from trainyard.cli.command.codes import INTERRUPTED, UNAVAILABLE
from trainyard.cli.output.layout import colour_on, field_lines, note, terminal_table, terminal_width
from trainyard.objects import parse_time
from trainyard.objects.usage import DeviceUsage

LIST_TIMEOUT = 5.0  # timeout in seconds for the list of a cluster's jobs


@click.command()
@click.option("--name", metavar="NAME", help="Name of the cluster.  [default: all clusters]")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="Output format.")
def status(name: str | None, output: str | None) -> None:
    """Show whether the local cluster of `trainyard up` is up, and its jobs.

    Exit code 0 if it is up, or without --name if any is; else 3.

    Example: trainyard status -o json
    """
    try:
        clusters = [
            Background(cluster_name)
            for cluster_name in ([name] if name is not None else cluster_names() or ["default"])
        ]
        states = [_cluster_state(cluster) for cluster in clusters]
        if output in ("json", "yaml"):
            data = [state.data() for state in states]
            _print_data(data[0] if len(data) == 1 else data, output)
        elif len(states) > 1:
            _print_clusters(states, output == "wide")
        else:
            for line in field_lines(states[0].lines(), terminal_width(1), colour_on(1)):
                click.echo(line)
        up = any(state.facts is not None for state in states)
    except BackgroundError as error:
        note(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0 if up else UNAVAILABLE)


class State(msgspec.Struct, frozen=True):
    """The state of one background cluster. `facts`: the data that its daemon has written; None: it is not up."""

    cluster: Background
    facts: dict[str, Any] | None
    jobs: list[tuple[str, str, str]] | None = (
        None  # kind, name and state of each; None: the API server has not answered
    )
    devices: tuple[DeviceUsage, ...] = ()
    warnings: tuple[str, ...] = ()  # what is wrong with the progress of jobs that run

    @property
    def word(self) -> str:
        """The state of the cluster in words, for the first line."""
        if self.facts is not None:
            return "up" if self.jobs is not None else "up, but it does not answer"
        if self.cluster.daemon_alive:
            return "on its way up or down"
        if self.cluster.daemon_killed:
            return "not up: its daemon was killed"
        if not self.cluster.folder.is_dir() and self.cluster.name != "default":
            return f"not up: there is no cluster {self.cluster.name}{clause_of_clusters(self.cluster.name)}"
        return "not up"

    def lines(self) -> list[tuple[str, str]]:
        """The fields of the default output: (name, text)."""
        cluster = self.cluster
        if self.facts is None:
            kept = cluster.state.exists()
            return [
                ("State", self.word),
                ("Log", str(cluster.log_path) if cluster.log_path.exists() else ""),
                ("It keeps", str(cluster.state) if kept else ""),
                ("Delete it", cluster.word("down --delete") if kept else ""),
                ("Start it", cluster.word("up")),
            ]
        from trainyard.cli.command.cluster_jobs import count_by_kind_and_state
        from trainyard.views.device_view import device_lines
        from trainyard.views.durations import format_age

        since = parse_time(self.facts.get("since"))
        since_text = (
            f"{self.facts.get('since')} ({format_age(time.time() - since)})" if since is not None else "unknown"
        )
        return [
            ("State", self.word),
            ("Since", since_text),
            ("Network", str(self.facts.get("network") or "")),
            ("API server", str(self.facts.get("server") or "")),
            ("Kubeconfig", str(cluster.kubeconfig)),
            *(("Context", f"{cluster.context} in {path}") for path in cluster.merged_kubeconfigs()),
            ("Log", str(cluster.log_path)),
            ("Pods' files", str(self.facts.get("folder") or "")),
            ("Process", str(self.facts.get("pid") or "")),
            *([("Stall", stall_text(stall))] if (stall := cluster.longest_stall()) else []),
            *(("GPUs" if index == 0 else "", text) for index, text in enumerate(device_lines(self.devices))),
            *([("Jobs", "unknown")] if self.jobs is None else []),
            *(
                ("Jobs" if index == 0 else "", text)
                for index, text in enumerate(count_by_kind_and_state(self.jobs or []))
            ),
            *([("Jobs", "none")] if self.jobs == [] else []),
            *(("Warnings" if index == 0 else "", text) for index, text in enumerate(self.warnings)),
        ]

    def data(self) -> dict[str, Any]:
        """The object for -o json and -o yaml; it always has all fields (docs/commands.md)."""
        cluster, facts = self.cluster, self.facts or {}
        stall = cluster.longest_stall() if self.facts is not None else None
        daemon_state = ("up" if self.jobs is not None else "unreachable") if self.facts is not None else "down"
        killed = self.facts is None and cluster.daemon_killed
        counts: dict[str, dict[str, int]] = {}
        for kind, _, state in self.jobs or ():
            state_counts = counts.setdefault(kind, {})
            state_counts[state] = state_counts.get(state, 0) + 1
        return {
            "name": cluster.name,
            "state": "killed"
            if killed
            else "changing"
            if self.facts is None and cluster.daemon_alive
            else daemon_state,
            "message": self.word,
            "since": facts.get("since"),
            "network": facts.get("network"),
            "server": facts.get("server"),
            "kubeconfig": str(cluster.kubeconfig) if cluster.kubeconfig.exists() else None,
            "contexts": [{"name": cluster.context, "file": str(path)} for path in cluster.merged_kubeconfigs()],
            "log": str(cluster.log_path) if cluster.log_path.exists() else None,
            "storage": str(cluster.state) if cluster.state.exists() else None,
            "podFolder": facts.get("folder"),
            "pid": facts.get("pid"),
            "longestStall": {"seconds": stall[0], "where": stall[1]} if stall else None,
            "jobs": None if self.jobs is None else {"total": len(self.jobs), "byKind": counts},
            "devices": msgspec.to_builtins(self.devices),
            "warnings": list(self.warnings),
        }


def stall_text(stall: tuple[float, str]) -> str:
    """The longest stall of the last minute, in words."""
    return f"in the last minute it answered nobody for {stall[0]:.1f} s, at {stall[1]}"


def _cluster_state(cluster: Background) -> State:
    from trainyard.cli.command.cluster_jobs import list_cluster_jobs, list_devices, list_warnings

    facts = cluster.facts()
    if facts is None:
        return State(cluster, None)
    jobs = asyncio.run(list_cluster_jobs(cluster, LIST_TIMEOUT))
    runs = any(state == "Running" for _, _, state in jobs or ())
    warnings = asyncio.run(list_warnings(cluster, LIST_TIMEOUT)) if runs else []
    devices = asyncio.run(list_devices(cluster, LIST_TIMEOUT))
    return State(cluster, facts, jobs, tuple(devices), tuple(warnings))


def _print_data(value: Any, form: str) -> None:
    from trainyard.cli.output.printing import as_json, as_yaml

    click.echo(as_json(value) if form == "json" else as_yaml(value).rstrip("\n"))


def _print_clusters(states: list[State], wide: bool) -> None:
    """Print a table with a row for each cluster, first those that are up."""
    rows = [["NAME", "STATE", "SINCE", "KUBECONFIG"]]
    for state in sorted(states, key=lambda state: state.facts is None):
        since = str((state.facts or {}).get("since", "-"))
        rows.append([state.cluster.name, state.word, since, str(state.cluster.kubeconfig)])
    click.echo("\n".join(terminal_table(rows, wide)))
