"""`trainyard describe JOB`: a job's fields, roles, replicas, conditions, children and events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, print_output, run_with_cluster
from trainyard.cli.command.job_names import job_names
from trainyard.cli.output.layout import UNKNOWN_WIDTH, UNLIMITED, colour_on, field_lines, table_lines, terminal_width
from trainyard.objects import format_time

if TYPE_CHECKING:
    from trainyard.app.evidence.related_objects import RelatedObjects
    from trainyard.cli.command.jobs import JobInfo
    from trainyard.views.job_details import JobDetails

EVENTS = 20  # the number of events shown, the newest


@click.command()
@click.argument("job", shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(["wide"]), help="Output format; wide does not cut long lines.")
def describe(job: str, output: str | None, **params: Any) -> None:
    """Show the details of a job: roles, replicas, conditions, the objects that it owns, events.

    A job that is not in the cluster is read from the history of this machine.

    Example: trainyard describe tfjob/mnist
    """
    width = UNLIMITED if output else terminal_width(1)
    run_with_cluster(
        params,
        lambda context: _describe(context, job, width),
        lambda: _from_history(job, params["namespace"], width),
        reads=True,
    )


async def _describe(context: ClusterContext, job: str, width: int) -> None:
    from trainyard.app.evidence.related_objects import get_related_objects
    from trainyard.cli.command.jobs import get_job

    info = await get_job(context, job)
    related = await get_related_objects(context.api, info.kind, info.job)
    print_output("\n".join(describe_lines(info, related, time.time(), width, colour_on(1))))


def _from_history(job: str, namespace: str, width: int) -> bool:
    from trainyard.cli.output.record_lines import record_lines
    from trainyard.cli.session.history_logs import last_record

    record = last_record(job, namespace)
    if record is not None:
        print_output("\n".join(record_lines(record, time.time(), width)))
    return record is not None


def describe_lines(
    info: JobInfo, related: RelatedObjects, now: float, width: int = UNKNOWN_WIDTH, colour: bool = False
) -> list[str]:
    """All lines of the command's output. Pure."""
    from trainyard.views.job_details import job_details

    details = job_details(info.job, related.pods, related.children, related.events, now)
    lines = field_lines([(f"{name}:", value) for name, value in _head(details, now)], width, colour)
    for title, rows in (
        ("Roles", _roles(details)),
        ("Replicas", _replicas(details, now)),
        ("Conditions", _conditions(details, now)),
        ("Children", _children(details, now)),
    ):
        if len(rows) > 1:
            lines += [f"{title}:", *(f"  {line}" for line in table_lines(rows, width - 2, colour))]
    lines += ["Events:" if details.events else "Events: none", *_events(details, now, width - 2)]
    return lines


def _head(details: JobDetails, now: float) -> list[tuple[str, str]]:
    from trainyard.views.job_details import restarts_text

    row = details.row
    return [
        ("Name", row.name),
        ("Namespace", row.namespace),
        ("Kind", f"{row.kind} ({row.api_version})"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in details.labels.items())),
        ("State", row.state),
        ("Reason", details.reason),
        ("Created", _time_text(row.created, now)),
        ("Deleted", _time_text(details.deleted, now)),
        ("Started", _time_text(row.started, now)),
        ("Ended", _time_text(row.ended_at, now)),
        ("Restarts", restarts_text(row.restarts, details.disruptions.items())),
        ("RuntimeId", details.runtime_id),
        ("Policies", ", ".join(f"{name}={_value_text(value)}" for name, value in details.policies.items())),
    ]


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time_text(seconds: float | None, now: float) -> str:
    return "" if seconds is None else f"{format_time(seconds)} ({_age(seconds, now)} ago)"


def _age(seconds: float | None, now: float) -> str:
    from trainyard.views.durations import format_age

    return "" if seconds is None else format_age(now - seconds)


def _roles(details: JobDetails) -> list[list[str]]:
    rows = [["ROLE", "REPLICAS", "CONTAINER", "IMAGE", "COMMAND"]]
    for role in details.roles:
        for index, container in enumerate(role.containers or [None]):
            role_cells = [role.name, str(role.replicas)] if index == 0 else ["", ""]
            cells = [container.name, container.image, _shorten(container.command)] if container else ["", "", ""]
            rows.append([*role_cells, *cells])
    return rows


def _shorten(command: str, longest: int = 60) -> str:
    text = " ".join(command.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _replicas(details: JobDetails, now: float) -> list[list[str]]:
    from trainyard.cli.output.job_lines import REPLICA_HEADS, replica_cells
    from trainyard.cli.output.printing import without_empty_columns
    from trainyard.views.memory import MemoryPeak, format_bytes

    rows = [[*REPLICA_HEADS, "PEAK", "GPU PEAK", "POD"]]  # of memory, where a node has measured it
    for slot in details.replicas:
        device_peak = format_bytes(slot.peak_device_memory) if slot.peak_device_memory else ""
        peaks = [MemoryPeak(slot.peak_memory, slot.memory_limit).cell, device_peak]
        rows.append([*replica_cells(slot, now), *peaks, slot.pod])
    return without_empty_columns(rows, ("PEAK", "GPU PEAK"))


def _conditions(details: JobDetails, now: float) -> list[list[str]]:
    rows = [["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]]
    for condition in details.conditions:
        since = _age(condition.since, now)
        rows.append([condition.type, condition.status, condition.reason, since, condition.message])
    return rows


def _children(details: JobDetails, now: float) -> list[list[str]]:
    rows = [["KIND", "NAME", "STATE", "AGE"]]
    return rows + [[child.kind, child.name, child.state, _age(child.created, now)] for child in details.children]


def _events(details: JobDetails, now: float, width: int) -> list[str]:
    from trainyard.cli.output.printing import event_rows

    if not details.events:
        return []
    earlier_count = len(details.events) - EVENTS
    earlier = [f"  ({earlier_count} earlier: trainyard events)"] if earlier_count > 0 else []
    return [*earlier, *(f"  {line}" for line in table_lines(event_rows(details.events[-EVENTS:], now), width))]
