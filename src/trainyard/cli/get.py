"""`trainyard get [KIND] [NAME]`: jobs and how they stand, one line each."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli import options
from trainyard.cli.completion import job_names
from trainyard.cli.layout import colour_on, state_colour, state_columns, table_line
from trainyard.cli.printing import FORMS, document
from trainyard.cli.speaking import Here, Said, note, out, print_table, speak
from trainyard.objects import Json

if TYPE_CHECKING:
    from trainyard.cli.jobs import Found


BREATH = 0.2  # seconds in which changes are gathered


@click.command(name="get")
@click.argument("which", nargs=-1, metavar="[KIND] [NAME]", shell_complete=job_names)
@options.cluster
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds roles and reasons.")
@click.option("-w", "--watch", is_flag=True, help="Then show each change, until Ctrl-C.")
def get(which: tuple[str, ...], everywhere: bool, output: str | None, watch: bool, **words: Any) -> None:
    """Show jobs of all kinds, of one kind, or one job.

    Examples: trainyard get, trainyard get tfjobs -o wide, trainyard get tfjob/mnist -o yaml
    """
    work = _watch if watch else _get
    speak(words, lambda here: work(here, which, everywhere, output or ""))


async def _watch(here: Here, which: tuple[str, ...], everywhere: bool, form: str) -> None:
    """The table, and after it every row that has changed (its age alone is no change)."""
    from trainyard.cli.feeds import Feeds, source
    from trainyard.cli.jobs import Found, find
    from trainyard.objects.labels import OWNER
    from trainyard.objects.resources import POD

    if form not in ("", "wide"):
        raise Said(f"-w and -o {form} do not go together; leave one of them out", 2)
    kinds, name = _meant(which)
    one = await find(here, name) if name else None
    namespace = "" if everywhere else here.namespace
    feeds, shown = Feeds(here.api), Shown()
    jobs = [(kind, feeds.watch(source(kind.gvk, namespace))) for kind in ([one.kind] if one else kinds)]
    pods = feeds.watch(source(POD, namespace, OWNER))
    try:
        while True:
            await feeds.next()
            if feeds.synced:
                found = [Found(kind, job) for kind, store in jobs for job in store]
                found = [each for each in found if one is None or each.word == one.word]
                shown.print(_rows(found, list(pods), everywhere, form == "wide"))
                await asyncio.sleep(BREATH)
    finally:
        await feeds.stop()


class Shown:
    """The rows that stand on the screen."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], list[str]] = {}
        self._widths: list[int] = []
        self._states: list[int] = []

    def print(self, table: list[list[str]]) -> None:
        age = table[0].index("AGE")
        head = age - 3  # what names a job: namespace, kind and name
        now = {tuple(row[:head]): [*row[:age], *row[age + 1 :]] for row in table}
        fresh = [row for row in table if self._rows.get(tuple(row[:head])) != now[tuple(row[:head])]]
        gone = [name for name in self._rows if name not in now]
        fresh += [[*name, "Deleted", *[""] * (len(table[0]) - head - 1)] for name in gone]
        self._rows = now
        longest = [max(map(len, column)) for column in zip(*table, strict=True)]
        self._states = state_columns(table[0]) if colour_on(1) else []
        self._widths = list(map(max, longest, self._widths or longest))
        for row in fresh:
            out(table_line(row, self._widths, {at: state_colour(row[at]) for at in self._states}))


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
        print_table(_rows(found, pods, everywhere, form == "wide"), form == "wide")


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
    from trainyard.client import ApiError
    from trainyard.objects.labels import OWNER
    from trainyard.objects.resources import POD

    async def within(namespace: str) -> list[Json]:
        try:
            return list((await here.api.list(POD, namespace, OWNER)).get("items") or [])
        except ApiError:  # the jobs are what was asked for
            return []

    pages = await asyncio.gather(*(within(one) for one in {one.namespace for one in found}))
    return [pod for page in pages for pod in page]


def _rows(found: list[Found], pods: list[Json], everywhere: bool, wide: bool) -> list[list[str]]:
    from trainyard.cli.view import Board, since, tally, why, word
    from trainyard.core import Config, parse_job
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
        roles = parse_job(one.kind, job, Config()).roles
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
