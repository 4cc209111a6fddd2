"""`trainyard delete JOB...`: delete jobs and their dependents."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.command.codes import TIMEOUT
from trainyard.cli.command.job_names import job_names
from trainyard.objects import name_of

POLL_SECONDS = 0.2  # seconds between two requests for the remaining pods
SHOWN_PODS = 5  # pods of a job that a message names


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
@click.option("--wait", is_flag=True, help="Wait until the pods are gone.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Maximum time to wait.  [default: no limit]",
)
def delete(jobs: tuple[str, ...], wait: bool, timeout: float | None, **params: Any) -> None:
    """Delete jobs with their pods, Services and other objects that they own.

    Example: trainyard delete mnist tfjob/other --wait
    """
    if timeout and not wait:
        raise click.UsageError("--timeout is the maximum time of --wait; add --wait")
    run_with_cluster(params, lambda context: _delete(context, jobs, wait, timeout))


async def _delete(context: ClusterContext, jobs: tuple[str, ...], wait: bool, timeout: float | None) -> None:
    from trainyard.app.job_actions import delete_job
    from trainyard.cli.command.jobs import get_all_jobs, list_pods

    # All names are resolved before the first DELETE.
    infos = await get_all_jobs(context, jobs)
    for info in infos:
        print_output(await delete_job(context.api, info.kind, info.job))
    if wait:
        remaining: dict[str, list[str]] = {}  # pods that have not ended, by job
        try:
            async with asyncio.timeout(timeout):
                while remaining := {  # noqa: ASYNC110  (the pods end in the cluster)
                    info.reference: names
                    for info in infos
                    if (names := [name_of(pod) for pod in await list_pods(context, info.job)])
                }:
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise CommandError(_remaining_text(remaining, infos[0].namespace, timeout), TIMEOUT) from None


def _remaining_text(remaining: dict[str, list[str]], namespace: str, timeout: float | None) -> str:
    """The message about the pods of deleted jobs that have not ended within the timeout."""
    texts = [
        f"{job} has {', '.join(names[:SHOWN_PODS])}{', ...' if len(names) > SHOWN_PODS else ''}"
        for job, names in remaining.items()
    ]
    pods = "; ".join(texts) or "the API server has not listed them"
    fix = f"they end within their grace period: kubectl get pods -n {namespace}"
    return f"pods have not ended within --timeout {timeout:g}: {pods}; {fix}"
