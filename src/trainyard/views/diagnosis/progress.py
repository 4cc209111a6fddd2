"""Findings about what the programs of running replicas report: values that are not finite, steps that do not come.

- A replica stalls when its next step does not come for many times as long as the steps before took. That is judged
  sooner where its processes use little CPU: an evaluation, a compilation or a checkpoint takes some, too.
- A stalled job does not "run fine", whatever its processes do: collectives of GPUs wait at full CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.diagnosis import BLOCK, NOTE, WAIT, Finding
from trainyard.objects.numbers import number_text
from trainyard.objects.usage import DISK, SLEEP
from trainyard.views.diagnosis.inputs import Facts, join_names
from trainyard.views.durations import format_age
from trainyard.views.job_view import natural_sort_key
from trainyard.views.usage_view import ReplicaUsage, is_loss

IDLE_CORES = 0.1  # a replica that uses less waits
SHORTEST_SILENCE, FEW_STEPS = 20.0, 10.0  # seconds, and steps, without one while the replica waits
BUSY_SILENCE, MANY_STEPS = 120.0, 50.0  # the same while it computes, or nobody measures that
MAX_EVIDENCE = 8  # replicas
DIVERGED_FIX = (
    "lower the learning rate or clip the gradients, and check the data at that step; then go on from a checkpoint "
    "before it"
)


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Values that are NaN or infinite now, or were at the end of the job, and since which step. A loss of a job that
    runs is a problem, another value a note."""
    by_value: dict[tuple[str, str], list[ReplicaUsage]] = {}
    for usage in sorted(facts.usages, key=_by_name):
        for name in usage.not_finite_since:
            by_value.setdefault((name, number_text(usage.metrics[name])), []).append(usage)
    for (name, text), usages in by_value.items():
        steps = [step for usage in usages if (step := usage.not_finite_since[name]) is not None]
        since = f" since step {number_text(min(steps))}" if steps else ""
        first, sources = usages[0], {usage.metrics_source for usage in usages}
        level = NOTE if facts.has_ended or not is_loss(name) else WAIT if sources == {"pattern"} else BLOCK
        verb = "was" if facts.has_ended else "is"
        summary = f"{join_names(usage.replica for usage in usages)}: {name} {verb} {text}{since}"
        recorded = f"metrics.jsonl of pod {first.pod}: {name}, from {first.metrics_source or 'no source'}"
        where = recorded if facts.has_ended else first.place_of(name)
        yield Finding(level, summary, where, (), DIVERGED_FIX if is_loss(name) else "")


def no_step(facts: Facts) -> Iterator[Finding]:
    """The replicas whose next step is overdue, since when, and what their processes do meanwhile."""
    running = sorted((usage for usage in facts.usages if usage.state == "Running"), key=_by_name)
    stalled = [usage for usage in running if not usage.stopped_pid and _is_overdue(usage, facts.now)]
    if not stalled:
        return
    first = min(stalled, key=lambda usage: usage.step_time or 0.0)
    pace = "" if first.seconds_per_step is None else f" ({first.seconds_per_step:.2g} s a step before)"
    summary = f"{join_names(usage.replica for usage in stalled)}: no step for {format_age(_silence(first, facts.now))}"
    summary = "; ".join(filter(None, [summary + pace, _activity(running, stalled)]))
    evidence = tuple(_state(usage, facts.now) for usage in stalled[:MAX_EVIDENCE])
    where = first.place_of("step")
    pids = [usage.waiting_pid for usage in stalled if usage.waiting_pid]
    fix = f"`py-spy dump --pid {pids[0]}` on that machine shows" if pids else "`py-spy dump --pid PID` shows"
    yield Finding(WAIT, summary, where, evidence, f"`{facts.command('logs')}` has its last words; {fix} where it waits")


def _by_name(usage: ReplicaUsage) -> tuple[str, int, str]:
    return natural_sort_key(usage.replica)


def _silence(usage: ReplicaUsage, now: float) -> float:
    """The seconds since the last step."""
    return now - (now if usage.step_time is None else usage.step_time)


def _is_idle(usage: ReplicaUsage) -> bool:
    return usage.cpu is not None and usage.cpu < IDLE_CORES


def _is_overdue(usage: ReplicaUsage, now: float) -> bool:
    silence, pace = _silence(usage, now), usage.seconds_per_step
    if pace is None:  # it may have hung in its first seconds, before a second step was seen
        return _is_idle(usage) and silence > BUSY_SILENCE
    shortest, steps = (SHORTEST_SILENCE, FEW_STEPS) if _is_idle(usage) else (BUSY_SILENCE, MANY_STEPS)
    return silence > max(shortest, steps * pace)


def _activity(running: list[ReplicaUsage], stalled: list[ReplicaUsage]) -> str:
    """What the processes of the replicas do, as far as it is known: all replicas wait, worker-2 sleeps."""
    if any(usage.cpu is None for usage in stalled):
        return ""
    if not all(map(_is_idle, stalled)):
        return "its processes compute" if len(stalled) == 1 else "their processes compute"
    subject = "all replicas wait" if all(map(_is_idle, running)) else "they wait" if len(stalled) > 1 else "it waits"
    subject = "it waits" if len(running) == 1 else subject
    verbs = {SLEEP: ("sleeps", "sleep"), DISK: ("waits for a disk", "wait for a disk")}
    parts = [subject]
    for reason, (verb, verbs_of_several) in verbs.items():
        names = [usage.replica for usage in running if usage.waits_for == reason]
        if subject == "it waits" and names == [stalled[0].replica]:
            return f"it {verb}"
        if names:
            parts.append(f"{join_names(names)} {verb if len(names) == 1 else verbs_of_several}")
    return ", ".join(parts)


def _state(usage: ReplicaUsage, now: float) -> str:
    """One replica as evidence."""
    step = "" if usage.step is None else f"step {number_text(usage.step)}, "
    cpu = "" if usage.cpu is None else f", CPU {usage.cpu * 1000:.0f}m"
    wait = f", process {usage.waiting_pid} waits for: {usage.waits_for}" if usage.waits_for else ""
    return f"{usage.replica}: {step}{format_age(_silence(usage, now))} ago{cpu}{wait}"
