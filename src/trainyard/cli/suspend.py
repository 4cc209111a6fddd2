"""`trainyard suspend JOB...`: no replica of the job runs until `trainyard resume`."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli import options
from trainyard.cli.cluster_command import ClusterContext, CommandError, print_output, run_with_cluster
from trainyard.cli.completion import job_names


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
def suspend(jobs: tuple[str, ...], **params: Any) -> None:
    """Stop what a job runs, and keep the job: its pods end, its deadline's clock stands still.

    Example: trainyard suspend mnist
    """
    run_with_cluster(params, lambda context: set_suspend(context, jobs, True))


async def set_suspend(context: ClusterContext, jobs: tuple[str, ...], suspend: bool) -> None:
    """Patch `suspend` where the kind has its policies; it takes precedence over any other place (S2)."""
    from trainyard.cli.jobs import get_job
    from trainyard.core import Config, parse_job
    from trainyard.views.job_view import job_result

    infos = [await get_job(context, job) for job in jobs]
    for info in infos:
        if end := job_result(info.job):
            raise CommandError(
                f"{info.reference} has ended ({end}): there is nothing to {'suspend' if suspend else 'resume'}"
            )
    for info in infos:
        if parse_job(info.kind, info.job, Config()).policy.suspend == suspend:
            print_output(f"{info.reference} is {'suspended already' if suspend else 'not suspended'}")
            continue
        body: Any = suspend
        for field in reversed(info.kind.api.policy_path("suspend")):
            body = {field: body}
        await context.api.patch(info.gvk, info.namespace, info.name, body)
        print_output(f"{info.reference} {'suspended' if suspend else 'resumed'}")
