"""`trainyard resume JOB...`: a job runs again from its current spec; replicas that succeeded are not run again."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import run_with_cluster
from trainyard.cli.command.job_names import job_names
from trainyard.cli.suspend import set_suspend


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
def resume(jobs: tuple[str, ...], **params: Any) -> None:
    """Let a suspended job run again, from its spec as it is now.

    Example: trainyard resume mnist
    """
    run_with_cluster(params, lambda context: set_suspend(context, jobs, False))
