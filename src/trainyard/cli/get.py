"""`trainyard get [KIND] [NAME]`: jobs and their states, one line each."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import (
    ClusterContext,
    CommandError,
    note,
    print_output,
    print_table,
    run_with_cluster,
)
from trainyard.cli.command.job_names import job_names
from trainyard.cli.output.layout import colour_on, state_colour, state_columns, table_line
from trainyard.cli.output.printing import FORMS, document
from trainyard.objects import Json

if TYPE_CHECKING:
    from trainyard.cli.command.jobs import JobInfo
    from trainyard.kinds import KindNames


BATCH_SECONDS = 0.2  # seconds in which changes are collected before rows are printed


@click.command(name="get")
@click.argument("which", nargs=-1, metavar="[KIND] [NAME]", shell_complete=job_names)
@options.cluster
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-o", "--output", type=click.Choice(FORMS), help="Output format; wide adds the roles and the reason.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print a line for each change, until Ctrl-C.")
def get(which: tuple[str, ...], everywhere: bool, output: str | None, watch: bool, **params: Any) -> None:
    """List jobs: all, those of a KIND, or the one with a NAME.

    \b
    Examples:
      trainyard get
      trainyard get tfjobs -o wide
      trainyard get tfjob/mnist -o yaml
    """
    work = _watch if watch else _get
    run_with_cluster(params, lambda context: work(context, which, everywhere, output or ""), reads=True)


async def _watch(context: ClusterContext, arguments: tuple[str, ...], everywhere: bool, form: str) -> None:
    """Print the table, and then every row that changes in another column than AGE."""
    from trainyard.cli.command.jobs import get_job, job_infos
    from trainyard.controller_runtime.watches import Watches, watch_target
    from trainyard.objects.labels import OWNER
    from trainyard.objects.resources import POD

    if form not in ("", "wide"):
        raise CommandError(f"-o {form} prints once, and -w watches; leave out -o {form} or -w", 2)
    kinds, name = _parse_arguments(arguments)
    named_info = await get_job(context, name) if name else None
    resources = [named_info.gvk] if named_info else [names.gvk for names in kinds]
    namespace = "" if everywhere else context.namespace
    watches, shown_rows = Watches(context.api), ChangedRows()
    jobs = [watches.watch(watch_target(gvk, namespace)) for gvk in resources]
    pods = watches.watch(watch_target(POD, namespace, OWNER))
    try:
        while True:
            await watches.wait_for_change()
            if watches.synced:
                infos = job_infos(job for store in jobs for job in store)
                infos = [info for info in infos if named_info is None or info.reference == named_info.reference]
                shown_rows.print(jobs_table(infos, list(pods), everywhere, form == "wide"))
                await asyncio.sleep(BATCH_SECONDS)
    finally:
        await watches.stop()


class ChangedRows:
    """The rows that were printed last, by namespace, kind and name; prints rows that differ from them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], list[str]] = {}
        self._widths: list[int] = []
        self._states: list[int] = []

    def print(self, table: list[list[str]]) -> None:
        """Print the rows that differ from the last table, and a row `Deleted` for those that are gone."""
        age = table[0].index("AGE")
        key_size = age - 3  # the columns that identify a job: namespace, kind and name
        rows = {tuple(row[:key_size]): [*row[:age], *row[age + 1 :]] for row in table}
        new_rows = [row for row in table if self._rows.get(tuple(row[:key_size])) != rows[tuple(row[:key_size])]]
        gone = [name for name in self._rows if name not in rows]
        new_rows += [[*name, "Deleted", *[""] * (len(table[0]) - key_size - 1)] for name in gone]
        self._rows = rows
        longest = [max(map(len, column)) for column in zip(*table, strict=True)]
        self._states = state_columns(table[0]) if colour_on(1) else []
        self._widths = list(map(max, longest, self._widths or longest))
        for row in new_rows:
            print_output(table_line(row, self._widths, {column: state_colour(row[column]) for column in self._states}))


async def _get(context: ClusterContext, arguments: tuple[str, ...], everywhere: bool, form: str) -> None:
    from trainyard.cli.command.jobs import get_job, list_jobs

    kinds, name = _parse_arguments(arguments)
    if name:
        if everywhere:
            raise CommandError(
                f"{name}: a job cannot be looked up by its name in all namespaces (-A); write -n NAMESPACE", 2
            )
        infos: list[JobInfo] = [await get_job(context, name)]
    else:
        infos = await list_jobs(
            ClusterContext(context.api, "" if everywhere else context.namespace, context.access), kinds
        )
    if form in ("json", "yaml"):
        print_output(document([info.job for info in infos], form, bool(name)))
    elif form == "name":
        print_output("".join(f"{info.kind.api.singular}.{info.gvk.group}/{info.name}\n" for info in infos))
    elif not infos:
        note("There are no jobs." if everywhere else f"There are no jobs in namespace {context.namespace}.")
    else:
        from trainyard.app.evidence.pod_metrics import progress_warnings

        pods = await _list_pods(context, infos)
        print_table(jobs_table(infos, pods, everywhere, form == "wide"), form == "wide")
        namespace = "" if everywhere else infos[0].namespace
        jobs = [info.job for info in infos]
        for text in await progress_warnings(context.api, namespace, jobs, pods, reads_logs=bool(name)):
            note(text)


def _parse_arguments(arguments: tuple[str, ...]) -> tuple[tuple[KindNames, ...], str]:
    """The kinds, and the job (`NAME` or `KIND/NAME`) or "". A single argument that is not a kind is a job's name."""
    from trainyard import kinds
    from trainyard.cli.command.jobs import kind_names

    if len(arguments) > 2:
        raise CommandError(f"{arguments[2]}: an argument too many; write get [KIND] [NAME], or get KIND/NAME", 2)
    if len(arguments) == 2:
        return (), f"{arguments[0]}/{arguments[1]}"
    if not arguments or arguments[0] in ("all", "jobs"):
        return kinds.all_names(), ""
    if "/" not in arguments[0] and (named_kinds := kinds.matching_names(arguments[0])):
        return named_kinds, ""
    if arguments[0] in ("pods", "pod", "services", "events", "nodes"):
        raise CommandError(
            f"{arguments[0]}: is not a kind of job; write one of: {kind_names()};"
            f" other objects: `kubectl get {arguments[0]}`, those of a job: `trainyard describe JOB`",
            2,
        )
    return (), arguments[0]


async def _list_pods(context: ClusterContext, infos: list[JobInfo]) -> list[Json]:
    """The pods of all these jobs, in one request for each namespace."""
    from trainyard.client import ApiError
    from trainyard.objects.labels import OWNER
    from trainyard.objects.resources import POD

    async def list_pods(namespace: str) -> list[Json]:
        try:
            return list((await context.api.list(POD, namespace, OWNER)).get("items") or [])
        except ApiError:  # `get` shows jobs; without pods the table has no running replicas
            return []

    pages = await asyncio.gather(*(list_pods(namespace) for namespace in {info.namespace for info in infos}))
    return [pod for page in pages for pod in page]


def jobs_table(infos: list[JobInfo], pods: list[Json], everywhere: bool, wide: bool) -> list[list[str]]:
    """The table of the jobs with its head. `everywhere`: with the namespace; `wide`: with replicas and the cause."""
    from trainyard.cli.output.job_lines import states_text
    from trainyard.views.durations import format_age
    from trainyard.views.job_row import job_rows

    now = time.time()
    head = ["KIND", "NAME", "STATE", "RUNNING", "RESTARTS", "AGE"]
    table = [[*(["NAMESPACE"] if everywhere else []), *head, *(["REPLICAS", "WHY"] if wide else [])]]
    for row in job_rows([info.job for info in infos], pods, now):
        cells = [row.kind, row.name, row.state, f"{row.running}/{row.replicas}", str(row.restarts)]
        cells.append("" if row.created is None else format_age(now - row.created))
        wide_cells = [states_text(row.states), row.message] if wide else []
        table.append([*([row.namespace] if everywhere else []), *cells, *wide_cells])
    return table
