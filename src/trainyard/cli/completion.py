"""Shell completion: the script that a shell sources, and the completion of job names."""

from __future__ import annotations

import asyncio
from typing import Any

import click

COMPLETION_TIMEOUT = 1.5  # timeout of the requests to the cluster while a shell completes
_PROGRAM, _VARIABLE = "trainyard", "_TRAINYARD_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, names of jobs.

    \b
    bash: trainyard completion bash >> ~/.bash_completion
    zsh:  trainyard completion zsh > ~/.zfunc/_trainyard     (a folder of $fpath)
    fish: trainyard completion fish > ~/.config/fish/completions/trainyard.fish
    """
    from click.shell_completion import get_completion_class

    from trainyard.cli.commands import main

    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise click.UsageError(f"there is no completion for {shell}; write bash, zsh or fish")
    # Not source(): that starts bash to check its version, which must be at least 4.4 as the documents say.
    completer = shell_class(main, {}, _PROGRAM, _VARIABLE)
    click.echo(completer.source_template % completer.source_vars())


def job_names(context: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The jobs of the cluster that the options so far select, as `NAME` (`kind/name` if `incomplete` has a slash)."""
    from click.shell_completion import CompletionItem

    try:
        jobs = asyncio.run(_list_jobs(context.params))
    except Exception:
        return []
    with_kind = "/" in incomplete
    names = {f"{kind}/{name}" if with_kind else name: f"{kind}, {state}" for kind, name, state in jobs}
    return [CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)]


def history_job_names(context: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The jobs in the history of this machine, as `NAME` (`kind/name` if `incomplete` has a slash)."""
    from click.shell_completion import CompletionItem

    from trainyard.app.cluster_folders import BackgroundError
    from trainyard.app.history import history_folder, read_records

    try:
        records = read_records(history_folder())
    except BackgroundError:
        return []
    namespace = context.params.get("namespace") or ""
    names = {
        f"{record.kind.lower()}/{record.name}" if "/" in incomplete else record.name: (
            f"{record.kind}, {record.result or 'running'}"
        )
        for record in reversed(records)
        if namespace in ("", record.namespace)
    }
    return [CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)]


def recorded_job_names(context: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The jobs of the cluster, then those that only the history of this machine has: for the commands that read
    both."""
    items = job_names(context, param, incomplete)
    present = {item.value for item in items}
    return [*items, *(item for item in history_job_names(context, param, incomplete) if item.value not in present)]


async def _list_jobs(options: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(kind in lower case, name, state) of every job in the namespace."""
    from trainyard.app.kubeconfig import find_cluster
    from trainyard.cli.cluster_command import ClusterContext
    from trainyard.cli.jobs import list_jobs
    from trainyard.views.job_view import job_state

    access = find_cluster(options.get("kubeconfig") or "", options.get("context") or "")
    async with asyncio.timeout(COMPLETION_TIMEOUT), access.api() as api:
        infos = await list_jobs(ClusterContext(api, options.get("namespace") or access.namespace, access))
    return [(info.kind.api.singular, info.name, job_state(info.job)) for info in infos]
