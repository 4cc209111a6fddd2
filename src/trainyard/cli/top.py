"""`trainyard top [JOB]`: CPU, memory and progress of a job's replicas, or of all jobs; live on a terminal."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, note, print_output, run_with_cluster
from trainyard.cli.command.job_names import job_names
from trainyard.cli.output.layout import UNKNOWN_WIDTH, colour_on, prose, table_lines, terminal_table, terminal_width
from trainyard.objects.printable import printable

if TYPE_CHECKING:
    from trainyard.views.usage_view import JobUsage, ReplicaUsage, Spread

INTERVAL = 2.0  # seconds between two readings, which is how often a Trainyard node measures
MAX_LOGS = 32  # that are read for the steps of a job where no Trainyard node measures
REPLICA_HEADS = ["REPLICA", "STATE", "STEP", "STEP/S", "CPU", "MEM", "PEAK", "NODE"]
JOB_HEADS = ["JOB", "KIND", "STATE", "RUNNING", "STEP", "STEP/S", "CPU", "MEM", "PEAK"]
DEVICE_HEADS = ["GPU", "GPU MEM"]  # only where a replica has a GPU
UNKNOWN = "-"


class Reading(NamedTuple):
    """The usage at one time: of the replicas of one job, or else of jobs. `missing`: why there are no figures;
    `warnings`: what is wrong with the progress of a job."""

    title: str
    replicas: tuple[ReplicaUsage, ...] | None
    jobs: tuple[JobUsage, ...]
    missing: str
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The lines below the table."""
        return tuple(filter(None, (*self.warnings, self.missing)))


@click.command()
@click.argument("job", required=False, default="", shell_complete=job_names)
@options.cluster
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Output format; prints once.")
@click.option("--once", is_flag=True, help="Print once, also on a terminal.")
def top(job: str, everywhere: bool, output: str | None, once: bool, **params: Any) -> None:
    """Show CPU, memory and training steps of a job's replicas, or one line per job.

    On a terminal the table is refreshed every 2 seconds; q or Ctrl-C ends it.

    Example: trainyard top mnist
    """
    run_with_cluster(params, lambda context: _top(context, job, everywhere, output or "", once), reads=True)


async def _top(context: ClusterContext, job: str, everywhere: bool, form: str, once: bool) -> None:
    if everywhere and job:
        raise CommandError(
            f"{job}: a job cannot be looked up by its name in all namespaces (-A); write -n NAMESPACE", 2
        )
    if everywhere:
        context = msgspec.structs.replace(context, namespace="")
    reader = UsageReader(context, job)
    if not (form or once) and colour_on(1):
        from trainyard.cli.output.live import show_live

        async def lines() -> list[str]:
            height = shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).lines
            return reading_lines(await reader.read(), terminal_width(1), height - 1, colour=True)

        await show_live(lines, INTERVAL)
        return
    reading = await reader.read()
    if form:
        print_output(_json(reading))
    elif not reading.replicas and not reading.jobs:
        note(f"{job} has no replicas." if job else "There are no jobs." if everywhere else _no_jobs(context))
    else:
        print_output("\n".join(terminal_table(_table(reading))))
    for text in () if form else reading.notes:
        note(text)


def _no_jobs(context: ClusterContext) -> str:
    return f"There are no jobs in namespace {context.namespace}."


class UsageReader:
    """Reads the usage of the replicas of `job` or, for "", of all jobs."""

    def __init__(self, context: ClusterContext, job: str) -> None:
        self._context, self._job = context, job

    async def read(self) -> Reading:
        """The usage now. Raises CommandError when there is no such job, ApiError."""
        return await (self._replicas() if self._job else self._jobs())

    async def _replicas(self) -> Reading:
        from trainyard.app.evidence.pod_metrics import read_usages_and_steps
        from trainyard.cli.command.jobs import get_job, list_pods
        from trainyard.views.diagnosis.brief import brief_progress

        context, info = self._context, await get_job(self._context, self._job)
        pods = await list_pods(context, info.job)
        usages, missing, refusal = await read_usages_and_steps(context.api, info.job, pods, MAX_LOGS)
        warnings = tuple(filter(None, [brief_progress(info.kind, info.job, usages, time.time())]))
        warnings += await _other_programs(context, usages)
        return Reading(info.reference, tuple(usages), (), "; ".join(filter(None, (missing, refusal))), warnings)

    async def _jobs(self) -> Reading:
        from trainyard.app.evidence.pod_metrics import read_pod_metrics
        from trainyard.cli.command.jobs import list_jobs
        from trainyard.objects import uid_of
        from trainyard.objects.labels import OWNER
        from trainyard.objects.resources import POD
        from trainyard.views.diagnosis.brief import brief_progress
        from trainyard.views.job_row import job_row
        from trainyard.views.job_view import JobView
        from trainyard.views.usage_view import by_pod, job_usage, replica_usages

        context = self._context
        infos, page, (items, missing) = await asyncio.gather(
            list_jobs(context),
            context.api.list(POD, context.namespace, OWNER),
            read_pod_metrics(context.api, context.namespace, OWNER),
        )
        view = JobView.of([info.job for info in infos], page.get("items") or (), time.time())
        metrics, jobs, warnings = by_pod(items), [], []
        for info in infos:
            slots = view.slots(uid_of(info.job))
            usages = replica_usages(info.namespace, slots, metrics)
            jobs.append(job_usage(job_row(view, uid_of(info.job), slots), usages))
            if text := brief_progress(info.kind, info.job, usages, time.time()):
                warnings.append(f"{info.reference}: {text}")
        warnings += await _other_programs(context, jobs)
        jobs.sort(key=lambda usage: (-(usage.cpu or 0.0), -(usage.memory or 0), usage.namespace, usage.name))
        return Reading("", None, tuple(jobs), missing, tuple(warnings))


async def _other_programs(context: ClusterContext, usages: Sequence[ReplicaUsage | JobUsage]) -> tuple[str, ...]:
    """The programs outside of pods that use the GPUs of a cluster whose replicas use some."""
    if all(usage.device_memory is None for usage in usages):
        return ()
    from trainyard.app.evidence.pod_metrics import read_devices
    from trainyard.views.device_view import other_programs

    return tuple(other_programs(await read_devices(context.api)))


def reading_lines(reading: Reading, width: int, height: int, colour: bool) -> list[str]:
    """The lines of a screen of that size: a title, the table, one line for the rows that do not fit, and the notes."""
    missing = [line for text in reading.notes for line in prose(printable(text, line=True), width).split("\n")]
    title = f"{printable(reading.title, line=True) or 'jobs'}  {time.strftime('%H:%M:%S')}  q ends"
    rows = _table(reading)
    room = max(1, height - 2 - len(missing))  # without the title and the head
    rest = len(rows) - 1 - room
    lines: list[str] = []
    if rest > 0:
        room -= 1
        hidden = (reading.replicas or ())[room:]
        lines = [rest_line(len(rows) - 1 - room, hidden)[:width]]
    return [title[:width], *table_lines(rows[: room + 1], width, colour), *lines, *missing]


def rest_line(count: int, hidden: Sequence[ReplicaUsage]) -> str:
    """The line for the replicas below the screen."""
    from trainyard.views.usage_view import spreads

    texts = [f"{name} {_spread_text(name, spread)}" for name, spread in spreads(hidden).items()]
    return f"and {count} more" + (f": min/median/max {', '.join(texts)}" if texts else "")


def _spread_text(name: str, spread: Spread) -> str:
    show = {"step": _step, "cpu": _cpu, "memory": _size}[name]
    return "/".join(show(value) for value in (spread.minimum, spread.median, spread.maximum))


def _table(reading: Reading) -> list[list[str]]:
    usages: Sequence[ReplicaUsage | JobUsage] = reading.jobs if reading.replicas is None else reading.replicas
    has_devices = any(usage.device_memory is not None for usage in usages)
    device_heads = DEVICE_HEADS if has_devices else []
    if reading.replicas is not None:
        *heads, node = REPLICA_HEADS
        return [[*heads, *device_heads, node], *(_replica_row(usage, has_devices) for usage in reading.replicas)]
    namespaces = {usage.namespace for usage in reading.jobs}
    head = [*(["NAMESPACE"] if len(namespaces) > 1 else []), *JOB_HEADS, *device_heads]
    return [head, *(_job_row(usage, len(namespaces) > 1, has_devices) for usage in reading.jobs)]


def _replica_row(usage: ReplicaUsage, with_devices: bool) -> list[str]:
    return [usage.replica, usage.state, *_figures(usage, with_devices), usage.node]


def _job_row(usage: JobUsage, with_namespace: bool, with_devices: bool) -> list[str]:
    running = f"{usage.running}/{usage.replicas}"
    row = [usage.name, usage.kind, usage.state, running, *_figures(usage, with_devices)]
    return [usage.namespace, *row] if with_namespace else row


def _figures(usage: ReplicaUsage | JobUsage, with_devices: bool) -> Iterable[str]:
    rate = UNKNOWN if usage.steps_per_second is None else f"{usage.steps_per_second:.2f}"
    figures = [_step(usage.step), rate, _cpu(usage.cpu), _size(usage.memory), _size(usage.peak_memory)]
    busy = UNKNOWN if usage.device_utilization is None else f"{usage.device_utilization:.0f} %"
    return [*figures, busy, _size(usage.device_memory)] if with_devices else figures


def _step(step: float | None) -> str:
    return UNKNOWN if step is None else f"{step:,.0f}"


def _cpu(cores: float | None) -> str:
    return UNKNOWN if cores is None else f"{cores * 1000:.0f}m"


def _size(size: float | None) -> str:
    from trainyard.views.memory import format_bytes

    return UNKNOWN if size is None else format_bytes(size)


def _json(reading: Reading) -> str:
    from trainyard.cli.output.printing import as_json

    notes = {"warnings": list(reading.warnings), "missing": reading.missing}
    if reading.replicas is None:
        return as_json({"jobs": msgspec.to_builtins(reading.jobs), **notes})
    replicas = [usage.to_json() for usage in reading.replicas]
    return as_json({"job": reading.title, "replicas": replicas, **notes})
