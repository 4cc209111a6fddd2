"""The policies of a job, one short function each. Times in, times out; nobody sleeps here."""

from __future__ import annotations

from trainyard.core.job import Job, Replica, Termination
from trainyard.core.model import Refusal

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 360.0
REFUSED_LONGEST = 300.0
OURS = "trainyard.dev/operator"
OTHERS = frozenset({"kueue.x-k8s.io/multikueue"})
"""Whom else a job is known to be handed over to."""


def is_managed_here(job: Job) -> bool:
    """With any other `managedBy` no request at all is made for the job (S6)."""
    return job.policy.managed_by in ("", OURS)


def backoff(failures: int) -> float:
    """Seconds between the end of an attempt and the next one: 10 s doubling to 6 min, no jitter (S14)."""
    return min(FIRST_PAUSE * 2 ** float(max(0, min(failures, 10) - 1)), LONGEST_PAUSE)


def retry_at(job: Job, end: Termination, failures: int, again: int, now: float) -> float:
    """When an ended slot is retried. `again`: how many retries its role has had already.

    A failure backs off from its end. A disruption is no failure: the first one is replaced at once; later ones back off
    from the start of the attempt, so that a pod that ran long is replaced at once and repeated evictions cannot spin.
    A slot that restarts alone waits FIRST_PAUSE from its start, because the others wait for it.
    """
    if job.kind.restart_scope == "slot":
        due = (end.started or end.ended) + FIRST_PAUSE
    else:
        due = end.ended + backoff(failures) if not end.disrupted else (end.started + backoff(again) if again else now)
    # A time that lies in the future was written by a clock that is wrong; it must not stop the job for ever.
    return due if max(end.ended, end.started) <= now + FIRST_PAUSE else now


def refusal_pause(tries: int) -> float:
    """Seconds between a refused write and the next try."""
    return min(FIRST_PAUSE * 2 ** float(max(0, min(tries, 10) - 1)), REFUSED_LONGEST)


def write_due_at(refusal: Refusal | None, verb: str, now: float) -> float:
    """When a write that may have been refused is due. A refusal in the future is of a clock that was wrong."""
    if refusal is None or refusal.verb != verb or refusal.at > now:
        return now
    return refusal.at + refusal_pause(refusal.tries)


def backoff_limit_exceeded(job: Job, failures: dict[str, int], in_place: int) -> str:
    """Why backoffLimit ends the job, "" when it does not (S4, S14)."""
    limit = job.policy.backoff_limit
    if limit is not None:
        count = sum(failures.values()) + in_place
        return f"{count} failed attempts, backoffLimit is {limit}" if count > limit else ""
    limit = job.kind.default_backoff_limit
    judged = {slot.role for slot in job.kind.supervised_slots_of(job)}
    count = sum(failures.get(role, 0) for role in judged)
    if limit is None or count <= limit:
        return ""
    return f"{count} failed attempts of {', '.join(sorted(judged))}, backoffLimit is {limit} by default"


def deadline_at(job: Job, start: float | None) -> float | None:
    """When activeDeadlineSeconds is over; None without one or while the clock is stopped."""
    return None if job.policy.deadline is None or start is None else start + job.policy.deadline


def ttl_expires_at(job: Job, completion: float | None) -> float | None:
    """When a finished job is deleted; None when it stays."""
    return None if job.policy.ttl is None or completion is None else completion + job.policy.ttl


def restarts_in_place(replicas: list[Replica]) -> int:
    """Restarts by the nodes, over the pods that are there: a deleted pod takes its own along (S28)."""
    return sum(replica.restarts for replica in replicas)
