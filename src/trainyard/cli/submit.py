"""`trainyard submit FILE...`: create jobs, and the objects that they need, in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard import kinds
from trainyard.app.background.clusters import background_of
from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import (
    ClusterContext,
    CommandError,
    is_local,
    note,
    print_output,
    run_with_cluster,
)
from trainyard.cli.command.codes import FAILED, SUCCEEDED, TIMEOUT
from trainyard.cli.output.layout import colour_on, terminal_prose
from trainyard.cli.session import submission
from trainyard.objects import GVK, Json, Problem, name_of, namespace_of
from trainyard.objects.resources import NAMESPACE

if TYPE_CHECKING:
    from trainyard.cli.command.jobs import JobInfo


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.cluster
@click.option("--wait", is_flag=True, help="Wait until every job has ended; exit code 1 if one failed.")
@click.option("--logs", "follow", is_flag=True, help="Print the logs, and wait until every job has ended.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Maximum time to wait.  [default: no limit]",
)
def submit(files: tuple[str, ...], wait: bool, follow: bool, timeout: float | None, **params: Any) -> None:
    """Create the jobs of FILE... in a cluster, and before them the other objects of the files.

    The files are checked as `trainyard lint` does. - is standard input. Objects that exist already are kept; a job,
    and a ConfigMap or Secret with other data, are refused.

    Example: trainyard submit examples/tf_job.yaml --logs
    """
    if timeout and not (wait or follow):
        raise click.UsageError("--timeout is the maximum time of --wait; add --wait or --logs")

    async def work(context: ClusterContext) -> int:
        background = background_of(context.access.source)
        local = background is not None or await is_local(context)
        submitted = submission.read(files, params["namespace"], context.namespace, private=False, local=local)
        if background is not None:
            submitted.check_network(str((background.facts() or {}).get("network")))
        infos = await _create_objects(context, submitted)
        return await _wait_until_ended(context, infos, follow, timeout) if wait or follow else SUCCEEDED

    run_with_cluster(params, work)


async def _create_objects(context: ClusterContext, submitted: submission.Submission) -> list[JobInfo]:
    """Create all objects in order, jobs last. Raises ManifestError for objects that the API server refuses,
    CommandError for a job that exists already."""
    from trainyard.cli.command.jobs import JobInfo
    from trainyard.client import AlreadyExists

    def created(gvk: GVK, obj: Json) -> None:
        text = f"{gvk.kind.lower()}/{name_of(obj)} created"
        if kinds.kind_of(obj):
            print_output(text)
            created_jobs.append(obj)
        else:
            note(text)

    for text in submitted.messages():
        note(text)
    await _create_namespaces(context, submitted)
    created_jobs: list[Json] = []
    try:
        return [JobInfo(kind, job) for kind, job in await submission.create_objects(context.api, submitted, created)]
    except AlreadyExists:
        kind, job = submitted.jobs[len(created_jobs)]
        reference = f"{kind.api.singular}/{name_of(job)}"
        text = f"{reference} exists already in {namespace_of(job)}; delete it first (trainyard delete {reference})"
        raise CommandError(str(submitted.with_place(job, Problem("metadata.name", text)))) from None


async def _create_namespaces(context: ClusterContext, submitted: submission.Submission) -> None:
    """Create missing namespaces of the files. The namespace of the command line or the context must exist."""
    from trainyard.client import AlreadyExists, Forbidden

    for namespace in submitted.namespaces:
        if namespace != context.namespace:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with contextlib.suppress(AlreadyExists, Forbidden):
                await context.api.create(NAMESPACE, "", body)
                note(f"namespace/{namespace} created")


async def _wait_until_ended(context: ClusterContext, infos: list[JobInfo], follow: bool, timeout: float | None) -> int:
    from trainyard.cli.logs import print_logs
    from trainyard.cli.output.job_lines import outcome_line
    from trainyard.cli.session.job_watch import LogSelection, exit_code
    from trainyard.cli.why import doubt_lines, finding_lines
    from trainyard.views.job_view import job_result

    references = ", ".join(info.reference for info in infos)
    try:
        async with asyncio.timeout(timeout):
            last_jobs = await print_logs(context, infos, LogSelection(follow=True, prefix=True, silent=not follow))
    except TimeoutError:
        note(f"not all jobs have ended within --timeout {timeout:g}; they go on: {references}")
        return TIMEOUT
    except asyncio.CancelledError:
        note(f"interrupted; the jobs go on: {references}")
        raise
    in_doubt = False
    for info, job in zip(infos, last_jobs, strict=True):
        succeeded = job_result(job) == "Succeeded"
        explanation = await (doubt_lines if succeeded else finding_lines)(context, info, job)
        in_doubt = in_doubt or bool(succeeded and explanation)
        print_output(terminal_prose(outcome_line(job, time.time(), colour=colour_on(1), with_message=not explanation)))
        for line in explanation:
            note(line)
    return FAILED if in_doubt else exit_code(last_jobs)
