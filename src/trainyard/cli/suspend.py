"""`trainyard suspend JOB...`: no replica of the job runs until `trainyard resume`."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli import options
from trainyard.cli.completion import job_names
from trainyard.cli.speaking import Here, Said, out, speak


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
def suspend(jobs: tuple[str, ...], **params: Any) -> None:
    """Stop what a job runs, and keep the job: its pods end, its deadline's clock stands still.

    Example: trainyard suspend mnist
    """
    speak(params, lambda here: set_suspend(here, jobs, True))


async def set_suspend(here: Here, jobs: tuple[str, ...], wanted: bool) -> None:
    """Patches `spec.suspend`, which takes precedence over any other field that a kind reads it from (S2)."""
    from trainyard.cli.jobs import find
    from trainyard.cli.view import ended
    from trainyard.core import Config, parse_job

    infos = [await find(here, job) for job in jobs]
    for info in infos:
        if end := ended(info.kind, info.job):
            raise Said(f"{info.word} has ended ({end}): there is nothing to {'suspend' if wanted else 'resume'}")
    for info in infos:
        if parse_job(info.kind, info.job, Config()).policy.suspend == wanted:
            out(f"{info.word} is {'suspended already' if wanted else 'not suspended'}")
            continue
        await here.api.patch(info.gvk, info.namespace, info.name, {"spec": {"suspend": wanted}})
        out(f"{info.word} {'suspended' if wanted else 'resumed'}")
