"""`trainyard suspend JOB...`: no replica of the job runs until `trainyard resume`."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.command.job_names import job_names


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
def suspend(jobs: tuple[str, ...], **params: Any) -> None:
    """Suspend jobs: delete their pods, keep the jobs. `trainyard resume` starts them again.

    The time of a suspended job does not count for activeDeadlineSeconds.

    Example: trainyard suspend mnist
    """
    run_with_cluster(params, lambda context: set_suspend(context, jobs, True))


async def set_suspend(context: ClusterContext, jobs: tuple[str, ...], suspend: bool) -> None:
    """Suspend or resume jobs. None is changed if one of them has ended."""
    from trainyard.app import job_actions
    from trainyard.cli.command.jobs import get_all_jobs

    infos = await get_all_jobs(context, jobs)
    try:
        for info in infos:
            job_actions.check_suspend(info.kind, info.job, suspend)
        for info in infos:
            print_output(await job_actions.set_suspend(context.api, info.kind, info.job, suspend))
    except job_actions.ActionRefused as error:
        raise CommandError(str(error)) from None
