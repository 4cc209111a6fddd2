"""`trainyard suspend JOB...`: no replica runs until it is resumed."""

from __future__ import annotations

from typing import Any

import click

from trainyard.cli import options
from trainyard.cli.completion import job_names
from trainyard.cli.speaking import Here, Said, out, speak


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@options.cluster
def suspend(jobs: tuple[str, ...], **words: Any) -> None:
    """Stop what a job runs, and keep the job: its pods end, its deadline's clock stands still.

    Example: trainyard suspend mnist
    """
    speak(words, lambda here: set_suspend(here, jobs, True))


async def set_suspend(here: Here, jobs: tuple[str, ...], wanted: bool) -> None:
    """Write `spec.suspend`. It stands before any other place that a kind reads it from (S2)."""
    from trainyard.cli.jobs import find
    from trainyard.cli.view import ended
    from trainyard.core import Config, parse_job

    found = [await find(here, job) for job in jobs]
    for one in found:
        if end := ended(one.kind, one.job):
            raise Said(f"{one.word} has ended ({end}): there is nothing to {'suspend' if wanted else 'resume'}")
    for one in found:
        if parse_job(one.kind, one.job, Config()).policy.suspend == wanted:
            out(f"{one.word} is {'suspended already' if wanted else 'not suspended'}")
            continue
        await here.api.patch(one.gvk, one.namespace, one.name, {"spec": {"suspend": wanted}})
        out(f"{one.word} {'suspended' if wanted else 'resumed'}")
