"""`trainyard get [KIND] [NAME]`: jobs and how they stand, one line each."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.printing import FORMS, aligned, document
from trainyard.cli.speaking import Here, Said, note, out, speak
from trainyard.objects import Json

if TYPE_CHECKING:
    from trainyard.cli.jobs import Found


@click.command(name="get")
@click.argument("which", nargs=-1, metavar="[KIND] [NAME]")
@options.cluster
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds roles and reasons.")
def get(which: tuple[str, ...], everywhere: bool, output: str | None, **words: Any) -> None:
    """Show jobs of all kinds, of one kind, or one job.

    Examples: trainyard get, trainyard get tfjobs -o wide, trainyard get tfjob/mnist -o yaml
    """
    speak(words, lambda here: _get(here, which, everywhere, output or ""))


async def _get(here: Here, which: tuple[str, ...], everywhere: bool, form: str) -> None:
    from trainyard.cli.jobs import find, listed

    kinds, name = _meant(which)
    if name:
        if everywhere:
            raise Said("a name and -A do not go together; write -n NAMESPACE", 2)
        found: list[Found] = [await find(here, name)]
    else:
        found = await listed(Here(here.api, "" if everywhere else here.namespace, here.access), kinds)
    if form in ("json", "yaml"):
        out(document([one.job for one in found], form, bool(name)))
    elif form == "name":
        out("".join(f"{one.kind.singular}.{one.gvk.group}/{one.name}\n" for one in found))
    elif not found:
        note("There are no jobs." if everywhere else f"There are no jobs in namespace {here.namespace}.")
    else:
        pods = await _pods(here, found)
        out("\n".join(aligned(_rows(found, pods, everywhere, form == "wide"))))


def _meant(which: tuple[str, ...]) -> tuple[Any, str]:
    """The kinds, and the job (`NAME` or `KIND/NAME`) if one is named. One word that is no kind is a name."""
    from trainyard import kinds
    from trainyard.cli.jobs import kind_named, known

    if len(which) > 2:
        raise Said("write `get`, `get KIND`, `get NAME`, `get KIND NAME` or `get KIND/NAME`", 2)
    if len(which) == 2:
        return (), f"{which[0]}/{which[1]}"
    if not which or which[0] in ("all", "jobs"):
        return kinds.ALL, ""
    if "/" not in which[0] and (named := kind_named(which[0])):
        return tuple(named), ""
    if which[0] in ("pods", "pod", "services", "events", "nodes"):
        raise Said(
            f"{which[0]}: this shows jobs ({known()}); for all else there is kubectl, and `trainyard describe`", 2
        )
    return (), which[0]


async def _pods(here: Here, found: list[Found]) -> list[Json]:
    """The pods of all these jobs, in one request for each namespace."""
    from trainyard.cli.jobs import POD
    from trainyard.client import ApiError
    from trainyard.objects.labels import OWNER

    async def within(namespace: str) -> list[Json]:
        try:
            return list((await here.api.list(POD, namespace, OWNER)).get("items") or [])
        except ApiError:  # the jobs are what was asked for
            return []

    pages = await asyncio.gather(*(within(one) for one in {one.namespace for one in found}))
    return [pod for page in pages for pod in page]


def _rows(found: list[Found], pods: list[Json], everywhere: bool, wide: bool) -> list[list[str]]:
    from trainyard.cli.view import Board, since, tally, why, word
    from trainyard.core import Config, read
    from trainyard.objects import name_of, namespace_of, uid_of

    now = time.time()
    board = Board({uid_of(one.job): one.job for one in found})
    for pod in pods:
        board.see_pod(pod, now)
    head = ["KIND", "NAME", "STATE", "RUNNING", "RESTARTS", "AGE"]
    rows = [[*(["NAMESPACE"] if everywhere else []), *head, *(["REPLICAS", "WHY"] if wide else [])]]
    for one in found:
        job = one.job
        slots = board.slots(uid_of(job))
        roles = read(one.kind, job, Config()).roles
        names = {role.name.lower() for role in roles}
        running = sum(slot.state == "Running" and slot.role in names for slot in slots)
        restarts = (job.get("status") or {}).get("restarts") or 0
        row = [namespace_of(job)] if everywhere else []
        row += [
            str(job["kind"]),
            name_of(job),
            word(job),
            f"{running}/{sum(role.replicas for role in roles)}",
            f"{restarts}",
        ]
        row.append(since(job["metadata"].get("creationTimestamp"), now))
        rows.append([*row, tally(slots), " ".join(why(job).split())] if wide else row)
    return rows
