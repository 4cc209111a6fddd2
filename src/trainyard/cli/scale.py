"""`trainyard scale JOB [ROLE=]N`: patch the job's scale subresource, if its kind has one."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.command.codes import INVALID
from trainyard.cli.command.job_names import job_names


@click.command()
@click.argument("job", shell_complete=job_names)
@click.argument("size", metavar="[ROLE=]N")
@options.cluster
def scale(job: str, size: str, **params: Any) -> None:
    """Change how many replicas a running job has, where its kind can take that.

    Example: trainyard scale elasticjob/imagenet 3
    """
    run_with_cluster(params, lambda context: _scale(context, job, size))


async def _scale(context: ClusterContext, job: str, size: str) -> None:
    from trainyard.app import job_actions
    from trainyard.cli.command.jobs import get_job

    role, _, number = size.rpartition("=")
    if not number.isdecimal() or not number.isascii() or len(number) > 9:
        raise CommandError(f"{size!r} is not a size; write a number, or ROLE=NUMBER", INVALID)
    info = await get_job(context, job)
    try:
        print_output(await job_actions.scale(context.api, info.kind, info.job, int(number), role))
    except job_actions.UnknownRole as error:
        raise CommandError(str(error), INVALID) from None
    except job_actions.ActionRefused as error:
        raise CommandError(str(error)) from None
