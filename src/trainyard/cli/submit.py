"""`trainyard submit FILE...`: hand in jobs, and what they need."""

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
def submit(files: tuple[str, ...], wait: bool, follow: bool, timeout: float | None, **words: Any) -> None:
    """Submit the jobs in FILE... to the cluster, with what else stands in them. Every problem comes with its place.

    Example: trainyard submit examples/tf_job.yaml --logs
    """

    async def work(here: Here) -> int:
        local = await is_local(here)
        found = submission.read(files, words["namespace"], here.namespace, private=False, local=local)
        made = await _create(here, found)
        return await _ended(here, made, follow, timeout) if wait or follow else SUCCEEDED

    speak(words, work)


async def _create(here: Here, found: submission.Submission) -> list[Any]:
    """Everything in its order, jobs last. Raises ManifestError for what the API server refuses."""
    from trainyard.cli.jobs import Found
    from trainyard.client import AlreadyExists, ApiError

    for warning in found.warnings:
        note(f"warning: {warning}")
    for text in found.notes:
        note(f"note: {text}")
    await _make_namespaces(here, found)
    made: list[Any] = []
    for gvk, obj in found.others:
        with contextlib.suppress(AlreadyExists):
            await _post(here, gvk, obj)
            note(f"{gvk.kind.lower()}/{name_of(obj)} created")
    for kind, obj in found.jobs:
        try:
            made.append(Found(kind, await _post(here, kind.gvk, obj)))
        except AlreadyExists:
            word = f"{kind.singular}/{name_of(obj)}"
            raise Said(
                f"{word} exists already in {namespace_of(obj)}; delete it first, or give this one another name"
            ) from None
        except ApiError as error:
            if error.code in (400, 403, 404, 422):
                raise ManifestError(_problems(kind.gvk.kind, obj, error)) from None
            raise
        out(f"{made[-1].word} created")
    return made


async def _make_namespaces(here: Here, found: submission.Submission) -> None:
    """Those that the files name are made where they are not there; one that only the command line names must be."""
    from trainyard.client import AlreadyExists, Forbidden

    for namespace in found.namespaces:
        if namespace != here.namespace:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with contextlib.suppress(AlreadyExists, Forbidden):
                await here.api.create(NAMESPACE, "", body)
                note(f"namespace/{namespace} created")


async def _post(here: Here, gvk: GVK, obj: Json) -> Json:
    namespace = "" if gvk == NAMESPACE else namespace_of(obj)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind} | await here.api.create(gvk, namespace, obj)


def _problems(kind: str, obj: Json, error: Any) -> list[Problem]:
    """The server's causes one by one, each with its field; else its one sentence."""
    causes = [one for one in error.details.get("causes") or () if isinstance(one, dict)]
    where = f"{kind} {name_of(obj)}"
    if error.code == 404 and f'namespaces "{namespace_of(obj)}" not found' in error.message:
        fix = f"make it with `kubectl create namespace {namespace_of(obj)}`, or name one that is there"
        return [Problem(where, f"{error.message}; {fix}")]
    if not causes:
        return [Problem(where, error.message)]
    return [Problem(f"{where}: {one.get('field') or ''}".rstrip(": "), str(one.get("message"))) for one in causes]


async def _ended(here: Here, made: list[Any], follow: bool, timeout: float | None) -> int:
    from trainyard.cli.logs import Wanted, show
    from trainyard.cli.view import ended, verdict
    from trainyard.cli.why import explained

    try:
        async with asyncio.timeout(timeout):
            last = await show(here, made, Wanted(follow=True, prefix=True, silent=not follow))
    except TimeoutError:
        note(f"the time is over (--timeout {timeout:g}); the jobs go on")
        return TIMEOUT
    code = SUCCEEDED
    for one, job in zip(made, last, strict=True):
        good = ended(one.kind, job) == "Succeeded"
        explanation = [] if good else await explained(here, one, job)
        out(prose(verdict(job, time.time(), colour=colour_on(1), why_too=not explanation), terminal_width()))
        if not good:
            code = FAILED
            for line in explanation:
                note(line)
    return code
