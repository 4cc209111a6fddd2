"""Jobs and replicas as lines of text: the progress line, the final table, the outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.cli.output.layout import UNKNOWN_WIDTH, coloured, prose, table_lines
from trainyard.objects import Json, as_dict, name_of, namespace_of, operator_status, parse_time
from trainyard.views.durations import format_clock
from trainyard.views.job_view import JobView, count_states, job_message, job_result, job_state, missing_peers_text
from trainyard.views.replica_view import ReplicaView


def states_text(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The numbers of replicas by role and state: worker: 2 Running, 1 Pending · ps: 1 Running."""
    return " · ".join(
        f"{role}: " + ", ".join(f"{count} {state}" for state, count in states.items())
        for role, states in counts.items()
    )


def progress(view: JobView, elapsed: float | None, now: float = 0.0) -> str:
    """The progress line: elapsed time, and for each job its state, its replicas by role and state, missing peers, the
    next restart, and the number of restarts.

    elapsed: in seconds; with None the line has no times and changes only with the state of a job or replica.
    """
    parts = [] if elapsed is None else [format_clock(elapsed)]
    for uid, job in view.jobs.items():
        slots = view.slots(uid)
        texts = [
            f"{name_of(job)} {job_state(job)}",
            *filter(None, [states_text(count_states(slots)), missing_peers_text(job, slots)]),
        ]
        if elapsed is not None:
            texts += [
                f"{slot.name} starts again in {format_clock(slot.back_off_end - now)}"
                for slot in slots
                if slot.back_off_end > now
            ][:1]
        if restarts := view.restarts(uid, slots):
            texts.append(f"restarts: {restarts}")
        parts.append(" · ".join(texts))
    return "  ".join(parts)


REPLICA_HEADS = ("REPLICA", "STATE", "RESTARTS", "EXIT", "TIME")


def replica_cells(slot: ReplicaView, now: float) -> list[str]:
    """A replica's cells of a table, under REPLICA_HEADS."""
    duration = "" if slot.started is None else format_clock((slot.ended_at or now) - slot.started)
    return [slot.name, slot.state, str(slot.restarts), slot.exit, duration]


def table(
    view: JobView,
    now: float,
    cut_short: str = "",
    width: int = UNKNOWN_WIDTH,
    colour: bool = False,
    with_message: bool = True,
) -> list[str]:
    """The final table: a line per replica, then a line per job. `cut_short`: why the jobs were ended early, or ""."""
    rows = [["JOB", *REPLICA_HEADS]]
    for uid, job in view.jobs.items():
        rows += [[name_of(job), *replica_cells(slot, now)] for slot in view.slots(uid)]
    lines = table_lines(rows, width, colour)
    verdicts = [outcome_line(job, now, cut_short, colour, with_message) for job in view.jobs.values()]
    return [*(lines if len(rows) > 1 else []), *(line for text in verdicts for line in prose(text, width).split("\n"))]


def outcome_line(job: Json, now: float, cut_short: str = "", colour: bool = False, with_message: bool = True) -> str:
    """One line about a job's end. `with_message`: with the message of its condition, also if the job has not
    succeeded."""
    status = operator_status(job)
    start = parse_time(status.get("startTime")) or parse_time(as_dict(job.get("metadata")).get("creationTimestamp"))
    end = parse_time(status.get("completionTime")) or now
    duration = f" after {format_clock(end - start)}" if start is not None else ""
    text = " ".join(job_message(job).split()) if with_message or job_result(job) == "Succeeded" else ""
    name = f"{job.get('kind', 'Job')} {namespace_of(job)}/{name_of(job)}"
    state = coloured(job_state(job), colour)
    outcome = f"{cut_short} while {state}" if cut_short and not job_result(job) else state
    return f"{name}: {outcome}{duration}" + (f": {text}" if text else "")
