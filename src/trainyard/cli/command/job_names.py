"""The completion of job names in a shell: what `shell_complete` of an argument returns."""

from __future__ import annotations

import asyncio
from typing import Any

import click

COMPLETION_TIMEOUT = 1.5  # timeout of the requests to the cluster while a shell completes


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

    from trainyard.app.background.cluster_folders import BackgroundError
    from trainyard.app.history.records import history_folder, read_records

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
    from trainyard.cli.command.cluster_command import ClusterContext
    from trainyard.cli.command.jobs import list_jobs
    from trainyard.views.job_view import job_state

    access = find_cluster(options.get("kubeconfig") or "", options.get("context") or "")
    async with asyncio.timeout(COMPLETION_TIMEOUT), access.command_api() as api:
        infos = await list_jobs(ClusterContext(api, options.get("namespace") or access.namespace, access))
    return [(info.kind.api.singular, info.name, job_state(info.job)) for info in infos]
