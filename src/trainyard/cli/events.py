"""`trainyard events [JOB]`: the events of a job, its children and its pods; oldest first."""

from __future__ import annotations

import time
from typing import Any

import click

from trainyard.cli import options
from trainyard.cli.cluster_command import ClusterContext, note, print_output, print_table, run_with_cluster
from trainyard.cli.completion import job_names
from trainyard.cli.printing import FORMS, document
from trainyard.objects import Json, name_of


@click.command()
@click.argument("job", required=False, shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds the source.")
def events(job: str | None, output: str | None, **params: Any) -> None:
    """Show the events of a job and of all that belongs to it, or of the whole namespace.

    Of a job that is gone they are read from the history of this machine.

    Example: trainyard events tfjob/mnist
    """

    def from_history() -> bool:
        return job is not None and _from_history(job, params["namespace"], output or "")

    run_with_cluster(params, lambda context: _events(context, job or "", output or ""), from_history)


async def _events(context: ClusterContext, job: str, form: str) -> None:
    from trainyard.cli.jobs import get_job, get_related_objects, last_timestamp
    from trainyard.objects.resources import EVENT

    if job:
        events = (await get_related_objects(context, await get_job(context, job))).events
    else:
        items = (await context.api.list(EVENT, context.namespace)).get("items") or []
        events = sorted(({"apiVersion": "v1", "kind": "Event", **item} for item in items), key=last_timestamp)
    _print(events, form, "There are no events." if job else f"There are no events in namespace {context.namespace}.")


def _from_history(job: str, namespace: str, form: str) -> bool:
    from trainyard.cli.history_logs import last_record
    from trainyard.cli.recorded_objects import events_of

    record = last_record(job, namespace)
    if record is not None:
        _print(events_of(record), form, "There are no events.")
    return record is not None


def _print(events: list[Json], form: str, empty_text: str) -> None:
    if form in ("json", "yaml"):
        print_output(document(events, form, False))
    elif form == "name":
        print_output("".join(f"event/{name_of(event)}\n" for event in events))
    elif events:
        print_table(event_rows(events, time.time(), form == "wide"), form == "wide")
    else:
        note(empty_text)


def event_rows(events: list[Json], now: float, wide: bool = False) -> list[list[str]]:
    """The table of the events with its head. `now`: Unix seconds; `wide`: with the source."""
    from trainyard.cli.jobs import last_timestamp
    from trainyard.cli.view import format_since

    table = [["AGE", "TYPE", "REASON", "OBJECT", *(["SOURCE"] if wide else []), "MESSAGE"]]
    for event in events:
        involved_object = event.get("involvedObject") or {}
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        age = format_since(last_timestamp(event), now) + (f" (x{count})" if count > 1 else "")
        object_text = f"{involved_object.get('kind', '')}/{involved_object.get('name', '')}"
        message = " ".join(str(event.get("message") or "").split())
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        cells = [age, str(event.get("type") or ""), str(event.get("reason") or ""), object_text]
        table.append([*cells, *([str(source)] if wide else []), message])
    return table
