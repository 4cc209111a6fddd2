"""`trainyard submit FILE...`: create jobs, and the objects that they need, in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import click

from trainyard.cli import options, submission
from trainyard.cli.codes import FAILED, SUCCEEDED, TIMEOUT
from trainyard.cli.layout import colour_on, prose, terminal_width
from trainyard.cli.speaking import Here, Said, is_local, note, out, speak
from trainyard.objects import GVK, Json, Problem, name_of, namespace_of
from trainyard.objects.manifest import ManifestError
from trainyard.objects.resources import NAMESPACE


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

    async def work(here: Here) -> int:
        local = await is_local(here)
        submitted = submission.read(files, params["namespace"], here.namespace, private=False, local=local)
        infos = await _create_objects(here, submitted)
        return await _wait_until_ended(here, infos, follow, timeout) if wait or follow else SUCCEEDED

    speak(params, work)


async def _create_objects(here: Here, submitted: submission.Submission) -> list[Any]:
    """Creates all objects in order, jobs last. Returns the jobs (list[Found]). Raises ManifestError for jobs that the
    API server refuses, Said for a job that exists already."""
    from trainyard.cli.jobs import Found
    from trainyard.client import AlreadyExists, ApiError

    for warning in submitted.warnings:
        note(f"warning: {warning}")
    for text in submitted.notes:
        note(f"note: {text}")
    await _create_namespaces(here, submitted)
    infos: list[Any] = []
    for gvk, obj in submitted.others:
        with contextlib.suppress(AlreadyExists):
            await _create_object(here, gvk, obj)
            note(f"{gvk.kind.lower()}/{name_of(obj)} created")
    for kind, obj in submitted.jobs:
        try:
            infos.append(Found(kind, await _create_object(here, kind.gvk, obj)))
        except AlreadyExists:
            job_text = f"{kind.singular}/{name_of(obj)}"
            raise Said(
                f"{job_text} exists already in {namespace_of(obj)}; delete it first, or give this one another name"
            ) from None
        except ApiError as error:
            if error.code in (400, 403, 404, 422):
                raise ManifestError(_problems(kind.gvk.kind, obj, error)) from None
            raise
        out(f"{infos[-1].word} created")
    return infos


async def _create_namespaces(here: Here, submitted: submission.Submission) -> None:
    """Creates missing namespaces of the files. The namespace of the command line or the context must exist."""
    from trainyard.client import AlreadyExists, Forbidden

    for namespace in submitted.namespaces:
        if namespace != here.namespace:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with contextlib.suppress(AlreadyExists, Forbidden):
                await here.api.create(NAMESPACE, "", body)
                note(f"namespace/{namespace} created")


async def _create_object(here: Here, gvk: GVK, obj: Json) -> Json:
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


async def _wait_until_ended(here: Here, infos: list[Any], follow: bool, timeout: float | None) -> int:
    from trainyard.cli.logs import Wanted, show
    from trainyard.cli.view import ended, verdict
    from trainyard.cli.why import explained

    try:
        async with asyncio.timeout(timeout):
            last_jobs = await show(here, infos, Wanted(follow=True, prefix=True, silent=not follow))
    except TimeoutError:
        note(f"the time is over (--timeout {timeout:g}); the jobs go on")
        return TIMEOUT
    code = SUCCEEDED
    for info, job in zip(infos, last_jobs, strict=True):
        succeeded = ended(info.kind, job) == "Succeeded"
        explanation = [] if succeeded else await explained(here, info, job)
        out(prose(verdict(job, time.time(), colour=colour_on(1), why_too=not explanation), terminal_width()))
        if not succeeded:
            code = FAILED
            for line in explanation:
                note(line)
    return code
