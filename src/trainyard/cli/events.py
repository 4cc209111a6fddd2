"""`trainyard events [JOB]`: the events of a job, its children and its pods; oldest first."""

from __future__ import annotations

import time
from typing import Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import ClusterContext, note, print_output, print_table, run_with_cluster
from trainyard.cli.command.job_names import job_names
from trainyard.cli.output.printing import FORMS, document
from trainyard.objects import Json, name_of


@click.command()
@click.argument("job", required=False, shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(FORMS), help="Output format; wide adds the source.")
def events(job: str | None, output: str | None, **params: Any) -> None:
    """List the events of a job, its pods and the other objects that it owns; without JOB, of the namespace.

    A job that is not in the cluster is read from the history of this machine.

    Example: trainyard events tfjob/mnist
    """

    def from_history() -> bool:
        return job is not None and _from_history(job, params["namespace"], output or "")

    run_with_cluster(params, lambda context: _events(context, job or "", output or ""), from_history, reads=True)


async def _events(context: ClusterContext, job: str, form: str) -> None:
    from trainyard.app.evidence.related_objects import get_related_objects
    from trainyard.cli.command.jobs import get_job
    from trainyard.objects.resources import EVENT
    from trainyard.views.event_view import last_timestamp

    if job:
        info = await get_job(context, job)
        events = (await get_related_objects(context.api, info.kind, info.job)).events
    else:
        items = (await context.api.list(EVENT, context.namespace)).get("items") or []
        events = sorted(({"apiVersion": "v1", "kind": "Event", **item} for item in items), key=last_timestamp)
    _print(events, form, "There are no events." if job else f"There are no events in namespace {context.namespace}.")


def _from_history(job: str, namespace: str, form: str) -> bool:
    from trainyard.app.history.recorded_job import events_of
    from trainyard.cli.session.history_logs import last_record

    record = last_record(job, namespace)
    if record is not None:
        _print(events_of(record), form, "There are no events.")
    return record is not None


def _print(events: list[Json], form: str, empty_text: str) -> None:
    from trainyard.cli.output.printing import event_rows
    from trainyard.views.event_view import event_view

    if form in ("json", "yaml"):
        print_output(document(events, form, False))
    elif form == "name":
        print_output("".join(f"event/{name_of(event)}\n" for event in events))
    elif events:
        print_table(event_rows(map(event_view, events), time.time(), form == "wide"), form == "wide")
    else:
        note(empty_text)
