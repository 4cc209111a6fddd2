"""`trainyard delete JOB...`: delete jobs and their dependents."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.command.codes import TIMEOUT
from trainyard.cli.command.job_names import job_names

POLL_SECONDS = 0.2  # seconds between two requests for the remaining pods


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
@click.option("--wait", is_flag=True, help="Return when its pods are gone, too.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
def delete(jobs: tuple[str, ...], wait: bool, timeout: float | None, **params: Any) -> None:
    """Delete jobs with everything that belongs to them: pods, Services, logs.

    Example: trainyard delete mnist tfjob/other --wait
    """
    run_with_cluster(params, lambda context: _delete(context, jobs, wait, timeout))


async def _delete(context: ClusterContext, jobs: tuple[str, ...], wait: bool, timeout: float | None) -> None:
    from trainyard.app.job_actions import delete_job
    from trainyard.cli.command.jobs import get_job, list_pods

    # All names are resolved before the first DELETE.
    infos = [await get_job(context, job) for job in dict.fromkeys(jobs)]
    for info in infos:
        print_output(await delete_job(context.api, info.kind, info.job))
    if wait:
        try:
            async with asyncio.timeout(timeout):
                for info in infos:
                    while await list_pods(context, info.job):  # noqa: ASYNC110  (the pods end in the cluster)
                        await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise CommandError("the time of --timeout is over, and pods of it are still there", TIMEOUT) from None
