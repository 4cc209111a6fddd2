"""Findings about replicas that run and do not advance as the others do.

Steps that are read from patterns in the output are a guess: alone they give a note, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from trainyard.core.diagnosis import NOTE, WAIT, Finding
from trainyard.views.diagnosis.inputs import Facts, join_names
from trainyard.views.usage_view import ReplicaUsage

BEHIND = 0.1  # of the median step of the role
FEW_STEPS = 5.0  # so many steps behind mean nothing


def stragglers(facts: Facts) -> Iterator[Finding]:
    """What keeps the replicas of a running job from advancing together."""
    stopped = [usage for usage in facts.usages if usage.stopped_pid]
    for usage in stopped:
        where = f"metrics.k8s.io, pod {usage.pod}: process {usage.stopped_pid} of node {usage.node or '?'}"
        summary = f"{usage.replica}: its process is stopped by a signal (SIGSTOP, SIGTSTP) or a debugger"
        yield Finding(WAIT, summary, where, (), f"`kill -CONT {usage.stopped_pid}` on that machine lets it go on")
    by_role: dict[str, list[ReplicaUsage]] = {}
    for usage in facts.usages:
        by_role.setdefault(usage.role, []).append(usage)
    for usages in by_role.values():
        yield from _behind(facts, [usage for usage in usages if not usage.stopped_pid])


def _behind(facts: Facts, usages: list[ReplicaUsage]) -> Iterator[Finding]:
    steps = [usage.step for usage in usages if usage.step is not None]
    if len(steps) < 2:
        return
    middle = median(steps)
    behind = [usage for usage in usages if usage.state == "Running" and usage.lag > max(FEW_STEPS, BEHIND * middle)]
    if not behind or len(behind) == len(usages):
        return
    slowest = behind[0]
    at = "has no step yet" if slowest.step is None else f"is at step {slowest.step:,.0f}"
    subject = "it" if len(behind) == 1 else "the slowest"
    names = join_names(usage.replica for usage in behind)
    summary = f"{names}: behind; {subject} {at}, the median of the role is {middle:,.0f}"
    is_guess = all(usage.metrics_source == "pattern" for usage in behind if usage.metrics_source)
    rates = [
        f"{usage.replica}: {usage.steps_per_second:.2f} steps a second"
        for usage in behind[:3]
        if usage.steps_per_second is not None
    ]
    role, index = slowest.role, slowest.replica.rpartition("-")[2]
    fix = f"`{facts.command('top')}` compares the replicas; `{facts.command('logs')} --role {role} --index {index}`"
    where = slowest.place_of("step")
    yield Finding(NOTE if is_guess else WAIT, summary, where, tuple(rates), f"{fix} shows what it does")
