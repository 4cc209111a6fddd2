"""`trainyard events [JOB]`: the events of a job, its children and its pods; oldest first."""

from __future__ import annotations

import time
from typing import Any

import click

from trainyard.cli import options
from trainyard.cli.completion import job_names
from trainyard.cli.printing import FORMS, document
from trainyard.cli.speaking import Here, note, out, print_table, speak
from trainyard.objects import Json, name_of


@click.command()
@click.argument("job", required=False, shell_complete=job_names)
@options.cluster
@click.option("-o", "--output", type=click.Choice(FORMS), help="wide adds who said it.")
def events(job: str | None, output: str | None, **words: Any) -> None:
    """Show the events of a job and of all that belongs to it, or of the whole namespace.

    Of a job that is gone they are read from the history of this machine.

    Example: trainyard events tfjob/mnist
    """

    def from_history() -> bool:
        return job is not None and _from_history(job, words["namespace"], output or "")

    speak(words, lambda here: _events(here, job or "", output or ""), from_history)


async def _events(here: Here, job: str, form: str) -> None:
    from trainyard.cli.jobs import family, find, moment
    from trainyard.objects.resources import EVENT

    if job:
        events = (await family(here, await find(here, job))).events
    else:
        items = (await here.api.list(EVENT, here.namespace)).get("items") or []
        events = sorted(({"apiVersion": "v1", "kind": "Event", **item} for item in items), key=moment)
    _print(events, form, "There are no events." if job else f"There are no events in namespace {here.namespace}.")


def _from_history(job: str, namespace: str, form: str) -> bool:
    from trainyard.cli.history_logs import last_record
    from trainyard.cli.kept import events_of

    record = last_record(job, namespace)
    if record is not None:
        _print(events_of(record), form, "There are no events.")
    return record is not None


def _print(events: list[Json], form: str, empty_text: str) -> None:
    if form in ("json", "yaml"):
        out(document(events, form, False))
    elif form == "name":
        out("".join(f"event/{name_of(event)}\n" for event in events))
    elif events:
        print_table(rows(events, time.time(), form == "wide"), form == "wide")
    else:
        note(empty_text)


def rows(found: list[Json], now: float, wide: bool = False) -> list[list[str]]:
    from trainyard.cli.jobs import moment
    from trainyard.cli.view import since

    table = [["AGE", "TYPE", "REASON", "OBJECT", *(["SOURCE"] if wide else []), "MESSAGE"]]
    for event in found:
        involved_object = event.get("involvedObject") or {}
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        age = since(moment(event), now) + (f" (x{count})" if count > 1 else "")
        object_text = f"{involved_object.get('kind', '')}/{involved_object.get('name', '')}"
        message = " ".join(str(event.get("message") or "").split())
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        cells = [age, str(event.get("type") or ""), str(event.get("reason") or ""), object_text]
        table.append([*cells, *([str(source)] if wide else []), message])
    return table
