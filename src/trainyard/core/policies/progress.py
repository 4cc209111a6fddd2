"""Condition Stalled: a job with the annotation PROGRESS_DEADLINE that makes no progress, and the replica that stopped
first (docs/rules.md S47).

Rules:
- A job is judged while each of its replicas runs or has succeeded, and from its first step on: imports, downloads and
  the compilation of the first step take their time. A replica that does not run is told by other conditions.
- It is stalled if none of its replicas has made a step for the deadline, nor shown another sign of life: an output, or
  a write to a file by one of its processes. So it is not while one writes a checkpoint or runs an evaluation.
- Signs of life of other replicas do not count if a silent one is behind each other that has made steps, or was stopped
  by a signal: the others wait for it, and may say so.
- The node decides on deadlines by its own clock, and tells by an annotation of the Pod (objects/no_progress.py): here
  no clocks are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trainyard.core.job_state import STALLED, OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.model import Child, Condition
from trainyard.objects import Problem, format_time
from trainyard.objects.meta import annotations_of
from trainyard.objects.no_progress import (
    ON_STALL,
    PROGRESS_DEADLINE,
    REPORT,
    RESTART,
    SHORTEST_DEADLINE,
    Activity,
    NoProgress,
    parse_no_progress,
    progress_deadline,
)
from trainyard.objects.numbers import number_text


class Heartbeat(msgspec.Struct, frozen=True):
    """A replica that runs. `no_progress`: None while it makes steps, and while one that has made none is alive."""

    replica: str
    no_progress: NoProgress | None = None


class Stall(msgspec.Struct, frozen=True):
    """The replica that stopped first, and how many others made steps before."""

    replica: str
    no_progress: NoProgress
    others: int = 0


def find_stall(heartbeats: Sequence[Heartbeat]) -> Stall | None:
    """The stall of a job whose replicas all run or have succeeded; `heartbeats`: of those that run."""
    overdue = [(beat.replica, beat.no_progress) for beat in heartbeats if beat.no_progress]
    if len(overdue) < len(heartbeats):  # one makes steps, or is alive and has not begun to
        return None
    stepped = [entry for entry in overdue if entry[1].step is not None]
    silent = [entry for entry in overdue if entry[1].silent]
    if not stepped or not silent:
        return None
    odd = _odd_activity([state for _, state in stepped if state.silent])
    replica, first = min(silent, key=lambda entry: _order(entry[1], odd))
    is_waited_for = first.stopped or _is_behind(first, [other for name, other in stepped if name != replica])
    if len(silent) < len(overdue) and not is_waited_for:
        return None
    return Stall(replica, first, len([name for name, _ in stepped if name != replica]))


def _order(state: NoProgress, odd: Activity) -> tuple[bool, bool, float, bool, bool, float]:
    """The order in which replicas have stopped. One that has made no steps is no help to tell, unless it was stopped by
    a signal. Of those with equal steps it is the one that does something else than all others, which wait in one way
    (by a socket or, on GPUs, at full CPU); else one that sleeps or waits for a disk, else the one that was silent
    first."""
    is_asleep = state.activity in ("disk", "sleep")
    is_odd = bool(odd) and state.activity == odd
    return not state.stopped, state.step is None, state.step or 0.0, not is_odd, not is_asleep, state.last_sign


def _odd_activity(states: Sequence[NoProgress]) -> Activity:
    """What one of at least three does while all others do one other thing; "" for nothing."""
    counts = Counter(state.activity for state in states)
    if len(states) < 3 or len(counts) != 2 or "" in counts:
        return ""
    rarest = min(counts, key=lambda activity: counts[activity])
    return rarest if counts[rarest] == 1 else ""


def _is_behind(first: NoProgress, others: Sequence[NoProgress]) -> bool:
    steps = [other.step for other in others if other.step is not None]
    return first.step is not None and bool(steps) and all(first.step < step for step in steps)


class Stalled(NamedTuple):
    """Condition Stalled, and why the stall restarts all replicas that have not ended, "" if it does not."""

    condition: Condition
    restart_text: str = ""


def stalled(job: Job, replicas: Sequence[Replica], owned: OwnedObjects) -> Stalled:
    """Whether a job with the annotation is stalled, by the pods of its current attempt."""
    annotations = annotations_of(job.obj)
    deadline = progress_deadline(annotations)
    runs = all(replica.state in ("Running", "Succeeded") for replica in replicas)
    if deadline is None or job.status.suspended or not runs:
        return Stalled(Condition(STALLED, False, "Progressing", ""))
    stall = find_stall([_heartbeat(pod) for pod in _running_pods(job, owned)])
    if stall is None:
        return Stalled(Condition(STALLED, False, "Progressing", ""))
    text = _stall_text(stall, annotations[PROGRESS_DEADLINE])
    is_restarted = annotations.get(ON_STALL) == RESTART
    condition = Condition(STALLED, True, "ProgressDeadlineExceeded", text)
    return Stalled(condition, f"{text}: all replicas restart" if is_restarted else "")


def _running_pods(job: Job, owned: OwnedObjects) -> Iterable[Child]:
    for pod in (pod for pods in owned.pods_by_owner.values() for pod in pods):
        if pod.phase == "Running" and not pod.deleting and pod.attempt == job.status.role(pod.role).attempt:
            yield pod


def _heartbeat(pod: Child) -> Heartbeat:
    return Heartbeat(pod.name, parse_no_progress(pod.status.no_progress))


def _stall_text(stall: Stall, deadline: str) -> str:
    """The replica that stopped first, since when, and what others do."""
    state = stall.no_progress
    last_step = "no step" if state.step is None else f"no step after {number_text(state.step)}"
    stopped = ": a signal has stopped it" if state.stopped else ""
    others = {0: "", 1: "; 1 other waits"}.get(stall.others, f"; {stall.others} others wait")
    return (
        f"pod {stall.replica} stopped first{stopped}: {last_step}, and no output and no write to a file since "
        f"{format_time(state.last_sign)} ({PROGRESS_DEADLINE}: {deadline}){others}"
    )


def annotation_problems(annotations: Mapping[str, object]) -> tuple[Problem, ...]:
    """The values of the annotations that are not understood."""
    problems = []
    deadline, action = annotations.get(PROGRESS_DEADLINE), annotations.get(ON_STALL)
    if deadline is not None and progress_deadline(annotations) is None:
        text = f"is {deadline!r}: write a duration such as 10m or 1h30m, of at least {SHORTEST_DEADLINE}s"
        problems.append(Problem(f"metadata.annotations[{PROGRESS_DEADLINE}]", text))
    if action is not None and action not in (REPORT, RESTART):
        text = f"is {action!r}: write {REPORT} or {RESTART}"
        problems.append(Problem(f"metadata.annotations[{ON_STALL}]", text))
    elif action is not None and deadline is None:
        text = f"has no effect without the annotation {PROGRESS_DEADLINE}: add it, or leave this out"
        problems.append(Problem(f"metadata.annotations[{ON_STALL}]", text))
    return tuple(problems)
