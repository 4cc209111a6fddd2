"""`trainyard up`: start a local cluster in the background; it is ready when the command returns."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.background.clusters import Background
from trainyard.app.kubeconfig import KubeconfigError
from trainyard.cli.command import options
from trainyard.cli.command.codes import INTERRUPTED, INVALID, UNAVAILABLE
from trainyard.cli.output.layout import note, note_problems
from trainyard.cli.session.working_directory import current
from trainyard.objects.manifest import ManifestError


@click.command()
@click.option("--name", metavar="NAME", default="default", show_default=True, help="Name of the cluster.")
@click.option("--fresh", is_flag=True, help="Start an empty cluster, and move the former state aside.")
@click.option("--merge-kubeconfig", is_flag=True, help="Add the context to $KUBECONFIG or ~/.kube/config.")
@click.option("--no-operator", is_flag=True, hidden=True, help="For `trainyard operator`, which then serves it.")
@options.machine
def up(name: str, fresh: bool, merge_kubeconfig: bool, **params: Any) -> None:
    """Start a local cluster in the background; `trainyard down` stops it.

    A stopped cluster continues with its jobs and with the options of the last `up`. A cluster that is up is not
    changed. The only line on stdout sets $KUBECONFIG:

    \b
      eval "$(trainyard up)"
      kubectl get nodes
    """
    try:
        cluster = Background(name)
        target = _merge_target() if merge_kubeconfig else None
        arguments, kept = _daemon_arguments(params), {} if fresh else cluster.kept_options()
        from_command_line = {name: arguments[name] for name in _OPTION_NAMES if _is_on_command_line(name)}
        started = cluster.start({**arguments, **kept, **from_command_line}, note, fresh)
        if started:
            cluster.keep_options({**kept, **from_command_line})
        _report(cluster, started, [_OPTION_NAMES[name] for name in kept if name not in from_command_line])
        if not started and (given_options := _given_options(cluster, params)):
            command = f"{cluster.word('down')}, then {cluster.word('up')} {' '.join(given_options)} ..."
            note(f"{', '.join(given_options)} has no effect on a cluster that is up; to apply it: {command}")
        _merge(cluster, target)
    except ManifestError as error:
        note_problems(error.problems)
        sys.exit(INVALID)
    except BackgroundError as error:
        note(str(error))
        sys.exit(error.code)
    except KubeconfigError as error:
        note(str(error))
        sys.exit(UNAVAILABLE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


_OPTION_NAMES = {
    "network": "--network",
    "images": "--images",
    "python": "--python",
    "mounts": "--mount",
    "cache": "--cache",
    "logs_dir": "--logs-dir",
    "config": "--controller-config-file",
}
"""The options that a cluster keeps, by parameter: `up` without them goes on with those of the `up` before it."""


def _is_on_command_line(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _daemon_arguments(params: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the daemon, with absolute paths: its working directory is another one."""
    options.history_limits()  # the daemon inherits the environment; its errors are reported here
    return {
        "network": params["network"],
        "images": [os.path.abspath(path) for path in params["images"]],
        "cache": os.path.abspath(params["cache"]) if params["cache"] else "",
        "python": options.interpreter(params["python"]),
        "config": os.path.abspath(params["config"]) if params["config"] else "",
        "mounts": {claim: str(folder) for claim, folder in map(options.parse_claim, params["mounts"])},
        "operator": not params["no_operator"],
        "working_directory": current(),
        "logs_dir": str(options.logs_dir(params["logs_dir"]) or ""),
    }


def _given_options(cluster: Background, params: dict[str, Any]) -> list[str]:
    """The options on the command line that only a new cluster can apply."""
    network = (cluster.facts() or {}).get("network")
    given_options = [name for param, name in _OPTION_NAMES.items() if param != "network" and params[param]]
    return given_options if params["network"] in ("auto", network) else ["--network", *given_options]


def _merge_target() -> Path:
    """The path of the user's kubeconfig. Raises KubeconfigError, before the cluster starts, if it cannot be changed."""
    from trainyard.app import kubeconfig_merge

    path = kubeconfig_merge.own_kubeconfig()
    kubeconfig_merge.check_mergeable(path)
    return path


def _merge(cluster: Background, target: Path | None) -> None:
    """Merge the cluster's kubeconfig into `target` and into the files of earlier merges: the port may have changed."""
    merged_paths = cluster.merged_kubeconfigs()
    for path in [*merged_paths, *([target] if target and target not in merged_paths else [])]:
        from trainyard.app import kubeconfig_merge

        try:
            if path == target or path.exists():
                kubeconfig_merge.merge(path, cluster.kubeconfig, cluster.context)
        except KubeconfigError as error:
            if path == target:
                raise
            note(str(error))
    if target is not None:
        cluster.add_merged_kubeconfig(target)
        note(f"In {target} it is the context {cluster.context}: kubectl --context {cluster.context}")


def _kubeconfig_scope_text(cluster: Background) -> str:
    """The text that tells whether trainyard's own commands need $KUBECONFIG, too; without it they use the default
    cluster."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if cluster.name != "default":
        return " and for trainyard's commands about this cluster"
    if not kubeconfig or kubeconfig == str(cluster.kubeconfig):
        return ""
    return " (trainyard's own commands would go to the cluster of $KUBECONFIG)"


def _report(cluster: Background, started: bool, kept_options: list[str]) -> None:
    facts = cluster.facts() or {}
    state = "is up" if started else f"is up already, since {facts.get('since', 'a moment ago')}"
    cluster_text = "The cluster" if cluster.name == "default" else f"The cluster {cluster.name}"
    resumed_text = ", where it was stopped" if started and facts.get("again") else ""
    note(f"{cluster_text} {state}{resumed_text} (network: {facts.get('network', 'unknown')}; log: {cluster.log_path}).")
    if started and kept_options:
        note(f"As before: {', '.join(kept_options)}. What is given now replaces it; --fresh forgets it.")
    # With eval "$(trainyard up)" the line on stdout is not visible.
    note(f"For kubectl{_kubeconfig_scope_text(cluster)}, on stdout:")
    click.echo(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    note("Next: trainyard submit FILE, get, logs -f JOB, why JOB, ui.")
    note("Which Python an image, or the runtime of a TrainJob, has: trainyard images.")
    note(f"Stop it: {cluster.word('down')}. It keeps what it has; {cluster.word('up')} goes on with it.")
