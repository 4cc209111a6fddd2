"""Retries: when the next attempt after a failure starts, and which replicas restart with it (docs/rules.md S14, S33).

`restart_count.py` only counts restarts, for `status.restarts`.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core.job import Job, JobStatus, Outcome, OwnedObjects, Replica, RoleStatus, Termination
from trainyard.core.kind import RestartScope
from trainyard.core.model import Slot
from trainyard.core.policies.failure_policy import termination_text
from trainyard.objects import exponential_delay
from trainyard.objects.structs import replace

BASE_DELAY = 10.0
MAX_DELAY = 360.0


class Restarts(NamedTuple):
    """`status` has a new attempt for each role that restarts now. `slots`: the replicas that restart without a new
    attempt of their role (RestartScope.SLOT). `message`: of condition Restarting, "" when it does not hold."""

    status: JobStatus
    slots: tuple[Replica, ...]
    message: str
    wakeups: tuple[float, ...]


def plan_restarts(
    job: Job, replicas: list[Replica], owned: OwnedObjects, status: JobStatus, outcome: Outcome, now: float
) -> Restarts:
    """Restart the replicas whose retry is due; none of a suspended job. `status`: the job's, with failures counted."""
    roles = dict(status.roles)
    messages: list[str] = []
    slots: list[Replica] = []
    wakeups: list[float] = []
    suspended = outcome.phase == "Suspended"
    replicas = [replica for replica in replicas if not (replica.termination and replica.termination.ignored)]
    failed = any(replica.termination and not replica.termination.disrupted for replica in replicas)
    for replica in replicas:
        termination, role = replica.termination, roles.get(replica.slot.role)
        if termination is None or role is None or (replica.child and replica.child.attempt < role.attempt):
            continue
        cause = "disrupted" if termination.disrupted else "retryable"
        messages.append(f"{termination_text(replica, termination)}; {cause}, tried again")
        if suspended or (job.restarts_gang() and failed and termination.disrupted):
            continue  # in a gang that has a failure, only the failure's back-off counts
        if (due := _due(job, termination, role, status, now)) > now:
            wakeups.append(due)
        elif job.restart_scope is RestartScope.SLOT:
            slots.append(replica)
        else:
            roles |= _next_attempts(status, roles if job.restarts_gang() else (replica.slot.role,), roles)
    if (lost := _lost_member(job, replicas, owned, status)) and not suspended and not failed:
        messages.append(f"the batch Job of {lost} was deleted: all replicas restart")
        roles |= _next_attempts(status, roles, roles)
    return Restarts(replace(status, roles=roles), tuple(slots), "; ".join(messages), tuple(wakeups))


def backoff(failures: int) -> float:
    """Seconds between the end of an attempt and the next one: 10 s doubling to 6 min, no jitter (S14)."""
    return exponential_delay(failures, BASE_DELAY, MAX_DELAY)


def retry_at(job: Job, termination: Termination, failures: int, retries: int, now: float) -> float:
    """When a slot is retried after `termination`. `retries`: the number of earlier retries of its role.

    A failure backs off from its end. A disruption is no failure: the first is replaced at once; later ones back off
    from the start of the attempt, so that a pod that ran long is replaced at once and repeated evictions cannot spin.
    A slot that restarts alone waits BASE_DELAY from its start, because the other slots wait for it.
    """
    ended, started = termination.finished_at, termination.started_at
    if job.restart_scope is RestartScope.SLOT:
        due = (started or ended) + BASE_DELAY
    elif not termination.disrupted:
        due = ended + backoff(failures)
    else:
        due = started + backoff(retries) if retries else now
    # A time in the future was written with a wrong clock; the job must not wait for it.
    return due if max(ended, started) <= now + BASE_DELAY else now


def _due(job: Job, termination: Termination, role: RoleStatus, status: JobStatus, now: float) -> float:
    scope = status.roles.values() if job.restarts_gang() else (role,)
    failures = sum(member.failures for member in scope)
    return retry_at(job, termination, failures, role.attempt - status.resume_count, now)


def _next_attempts(
    status: JobStatus, names: dict[str, RoleStatus] | tuple[str, ...], roles: dict[str, RoleStatus]
) -> dict[str, RoleStatus]:
    return {name: replace(roles[name], attempt=status.role(name).attempt + 1) for name in names}


def _lost_member(job: Job, replicas: list[Replica], owned: OwnedObjects, status: JobStatus) -> str:
    """The replica of a gang whose Job another client has deleted, "" when there is none. Its pod without owner shows
    that; if the pod, too, is gone before the next reconcile, only that Job is created again (S19)."""
    if not job.restarts_gang():
        return ""
    empty = {replica.slot for replica in replicas if replica.child is None}
    for pod in owned.pods_without_owner:
        current = pod.phase != "Succeeded" and pod.attempt == status.role(pod.role).attempt
        if current and Slot(pod.role, pod.index) in empty:
            return f"{pod.role} {pod.index}"
    return ""
