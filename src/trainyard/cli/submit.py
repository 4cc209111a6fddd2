"""`trainyard submit FILE...`: create jobs, and the objects that they need, in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options, submission
from trainyard.cli.cluster_command import ClusterContext, CommandError, is_local, note, print_output, run_with_cluster
from trainyard.cli.codes import FAILED, SUCCEEDED, TIMEOUT
from trainyard.cli.layout import colour_on, prose, terminal_width
from trainyard.objects import GVK, Json, Problem, name_of, namespace_of
from trainyard.objects.manifest import ManifestError
from trainyard.objects.resources import NAMESPACE

if TYPE_CHECKING:
    from trainyard.cli.jobs import JobInfo


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.cluster
@click.option("--wait", is_flag=True, help="Return when every job has ended; exit code 1 when one failed.")
@click.option("--logs", "follow", is_flag=True, help="Show their logs until they have ended (and wait).")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Wait no longer.")
def submit(files: tuple[str, ...], wait: bool, follow: bool, timeout: float | None, **params: Any) -> None:
    """Submit the jobs in FILE... to the cluster, with what else stands in them. Every problem comes with its place.

    Example: trainyard submit examples/tf_job.yaml --logs
    """

    async def work(here: ClusterContext) -> int:
        local = await is_local(here)
        submitted = submission.read(files, params["namespace"], here.namespace, private=False, local=local)
        infos = await _create_objects(here, submitted)
        return await _wait_until_ended(here, infos, follow, timeout) if wait or follow else SUCCEEDED

    run_with_cluster(params, work)


async def _create_objects(here: ClusterContext, submitted: submission.Submission) -> list[JobInfo]:
    """Creates all objects in order, jobs last. Raises ManifestError for jobs that the
    API server refuses, Said for a job that exists already."""
    from trainyard.cli.jobs import JobInfo
    from trainyard.client import AlreadyExists, ApiError

    for warning in submitted.warnings:
        note(f"warning: {warning}")
    for text in submitted.notes:
        note(f"note: {text}")
    await _create_namespaces(here, submitted)
    infos: list[JobInfo] = []
    for gvk, obj in submitted.others:
        with contextlib.suppress(AlreadyExists):
            await _create_object(here, gvk, obj)
            note(f"{gvk.kind.lower()}/{name_of(obj)} created")
    for kind, obj in submitted.jobs:
        try:
            infos.append(JobInfo(kind, await _create_object(here, kind.gvk, obj)))
        except AlreadyExists:
            job_text = f"{kind.api.singular}/{name_of(obj)}"
            raise CommandError(
                f"{job_text} exists already in {namespace_of(obj)}; delete it first, or give this one another name"
            ) from None
        except ApiError as error:
            if error.code in (400, 403, 404, 422):
                raise ManifestError(_problems(kind.gvk.kind, obj, error)) from None
            raise
        print_output(f"{infos[-1].reference} created")
    return infos


async def _create_namespaces(here: ClusterContext, submitted: submission.Submission) -> None:
    """Creates missing namespaces of the files. The namespace of the command line or the context must exist."""
    from trainyard.client import AlreadyExists, Forbidden

    for namespace in submitted.namespaces:
        if namespace != here.namespace:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with contextlib.suppress(AlreadyExists, Forbidden):
                await here.api.create(NAMESPACE, "", body)
                note(f"namespace/{namespace} created")


async def _create_object(here: ClusterContext, gvk: GVK, obj: Json) -> Json:
    namespace = "" if gvk == NAMESPACE else namespace_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind} | await here.api.create(gvk, namespace, obj)


def _problems(kind: str, obj: Json, error: Any) -> list[Problem]:
    """A problem for each of the causes in the Status details, with its field; without causes, the Status message."""
    causes = [cause for cause in error.details.get("causes") or () if isinstance(cause, dict)]
    object_text = f"{kind} {name_of(obj)}"
    if error.code == 404 and f'namespaces "{namespace_of(obj)}" not found' in error.message:
        fix = f"make it with `kubectl create namespace {namespace_of(obj)}`, or name one that is there"
        return [Problem(object_text, f"{error.message}; {fix}")]
    if not causes:
        return [Problem(object_text, error.message)]
    return [
        Problem(f"{object_text}: {cause.get('field') or ''}".rstrip(": "), str(cause.get("message")))
        for cause in causes
    ]


async def _wait_until_ended(here: ClusterContext, infos: list[JobInfo], follow: bool, timeout: float | None) -> int:
    from trainyard.cli.logs import LogSelection, print_logs
    from trainyard.cli.view import job_result, outcome_line
    from trainyard.cli.why import finding_lines

    try:
        async with asyncio.timeout(timeout):
            last_jobs = await print_logs(here, infos, LogSelection(follow=True, prefix=True, silent=not follow))
    except TimeoutError:
        note(f"the time is over (--timeout {timeout:g}); the jobs go on")
        return TIMEOUT
    code = SUCCEEDED
    for info, job in zip(infos, last_jobs, strict=True):
        succeeded = job_result(job) == "Succeeded"
        explanation = [] if succeeded else await finding_lines(here, info, job)
        print_output(
            prose(outcome_line(job, time.time(), colour=colour_on(1), with_message=not explanation), terminal_width())
        )
        if not succeeded:
            code = FAILED
            for line in explanation:
                note(line)
    return code
