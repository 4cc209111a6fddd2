"""Retries: when the next attempt after a failure starts, and which replicas restart with it (docs/rules.md S14, S33).

`restart_count.py` only counts restarts, for `status.restarts`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainyard.core.carriers.terminations import restarts_of_replica
from trainyard.core.job_state import (
    JobStatus,
    Outcome,
    OwnedObjects,
    Replica,
    RestartCause,
    RoleFailure,
    RoleStatus,
    Termination,
)
from trainyard.core.kind import Job
from trainyard.core.model import Child, Condition, RestartScope, Slot
from trainyard.core.names import digest, same_digest
from trainyard.core.policies.backoff_limit import role_failure
from trainyard.core.policies.failure_policy import join_texts, termination_text
from trainyard.core.policies.success_policy import GRACE
from trainyard.core.restart_causes import disruption_cause
from trainyard.objects import exponential_delay
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace

BASE_DELAY = 10.0
MAX_DELAY = 360.0
RETRYABLE = "retryable, tried again"  # in the message of condition Restarting: the program has failed


class Restarts(msgspec.Struct, frozen=True):
    """`status` has a new attempt for each role that restarts now, and counts the restarts by their cause. `slots`: the
    replicas that restart without a new attempt of their role (RestartScope.SLOT). `message`: of condition Restarting,
    "" when it does not hold."""

    status: JobStatus
    slots: tuple[Replica, ...]
    message: str
    wakeups: tuple[float, ...]

    @property
    def condition(self) -> Condition:
        """Condition Restarting."""
        reason = "ReplicaEnded" if self.message else "Restarted"
        return Condition("Restarting", bool(self.message), reason, self.message)


# Longer than 40 lines: each case continues what the one before it has decided about the roles.
def plan_restarts(
    job: Job,
    replicas: list[Replica],
    owned: OwnedObjects,
    status: JobStatus,
    outcome: Outcome,
    now: float,
    stall: str = "",
) -> Restarts:
    """Restart the replicas whose retry is due; none of a suspended job, or of one that has succeeded (GRACE). `status`:
    the job's, with failures counted. `stall`: why all that have not ended restart, "" if they do not."""
    roles, causes = dict(status.roles), dict(status.restart_causes)
    messages: list[str] = []
    slots: list[Replica] = []
    wakeups: list[float] = []
    suspended = outcome.phase == "Suspended"
    is_kept = suspended or outcome.reason == GRACE
    resumed = status.resume_count > job.status.resume_count  # that is a new attempt
    tried = () if is_kept else replicas
    retried = [replica for replica in tried if not (replica.termination and replica.termination.ignored)]
    failed = any(replica.termination and not replica.termination.disrupted for replica in retried)
    for replica in retried:
        termination, role = replica.termination, roles.get(replica.slot.role)
        if termination is None or role is None or (replica.child and replica.child.attempt < role.attempt):
            continue
        verdict = "disrupted, tried again" if termination.disrupted else RETRYABLE
        messages.append(f"{termination_text(replica, termination)}; {verdict}")
        if job.restarts_gang() and failed and termination.disrupted:
            continue  # in a gang that has a failure, only the failure's back-off counts
        before = status.role(replica.slot.role).without_progress
        if job.restart_scope is RestartScope.SLOT:
            before = max(0, before - 1)  # after_attempt has counted this one
        if (due := retry_at(job, termination, before, now)) > now:
            wakeups.append(due)
            continue
        if job.restart_scope is RestartScope.SLOT:  # failures.py counts the cause
            slots.append(replica)
            continue
        idle = 0 if made_progress(job, termination, before) else before + 1
        roles |= _next_attempts(status, roles if job.restarts_gang() else (replica.slot.role,), roles, idle)
        if termination.disrupted:
            _count(causes, disruption_cause(termination.reason))
    exceeded = None if is_kept else role_failure(job.with_status(status), replicas)
    if (
        exceeded
        and not (failed or resumed)
        and (due := _due_in_place(status.role(exceeded.role), exceeded, replicas, now)) > now
    ):
        wakeups.append(due)
        exceeded = None
    is_begun = is_kept or failed or resumed
    lost, cause = ("", None) if is_begun else _lost(job, replicas, owned, status, stall, exceeded)
    if lost and cause:
        if cause != "program" and not _has_new_attempt(status, roles):
            _count(causes, cause)
        roles |= _next_attempts(status, roles, roles)
        if exceeded:
            ended = roles[exceeded.role]
            roles |= {exceeded.role: replace(ended, without_progress=ended.without_progress + 1)}
        roles = {name: _after_progress(job, name, role, replicas, now) for name, role in roles.items()}
    if job.restarts_gang() and (resumed or _has_new_attempt(status, roles)):
        status, roles = _limits_of_roles(job, status, roles, exceeded, failed or resumed)
    status = replace(status, roles=_with_replaced(job, status, roles, replicas), restart_causes=causes)
    status = replace(status, gang="" if suspended else _gang(job, replicas, status))
    message = "; ".join(filter(None, (join_texts(messages), lost)))
    return Restarts(status, tuple(slots), message, tuple(wakeups))


def ended_slots(job: Job, replicas: list[Replica], status: JobStatus) -> frozenset[Slot]:
    """The slots that run nothing, and for which nothing is created now: they have ended for good or, alone, wait for
    their retry. `status`: the next one. The members of a gang that waits for its retry are not among them: it starts
    again as a whole."""
    return frozenset(replica.slot for replica in replicas if _has_ended(job, replica, status))


def _has_ended(job: Job, replica: Replica, status: JobStatus) -> bool:
    role, termination = replica.slot.role, replica.termination
    is_renewed = status.role(role).attempt > job.status.role(role).attempt
    if replica.state == "Succeeded" or (termination is not None and termination.ignored):
        return not (is_renewed and job.restarts_gang())
    return termination is not None and not (is_renewed or job.restarts_gang())


def backoff(attempts: int) -> float:
    """Seconds between the end of an attempt and the next one. `attempts`: how many in a row have ended without
    progress, this one included. None after the first, then 10 s doubling to 6 min, no jitter (S14)."""
    return exponential_delay(attempts - 1, BASE_DELAY, MAX_DELAY) if attempts > 1 else 0.0


def made_progress(job: Job, termination: Termination, without_progress: int) -> bool:
    """Whether the attempt ran longer than the back-off that would be due after it, at least BASE_DELAY: a program that
    ends at once cannot spin, and one that trains for a while is never kept from going on.
    `without_progress`: attempts in a row before it that made none."""
    return termination.started_at > 0 and _is_long(
        job, termination.finished_at - termination.started_at, without_progress
    )


def _is_long(job: Job, seconds: float, without_progress: int) -> bool:
    is_alone = job.restart_scope is RestartScope.SLOT
    return seconds > (BASE_DELAY if is_alone else max(BASE_DELAY, backoff(without_progress + 1)))


def _after_progress(job: Job, name: str, role: RoleStatus, replicas: list[Replica], now: float) -> RoleStatus:
    """The role whose attempt ends although its replicas run: without attempts in a row if this one ran long enough."""
    children = (replica.child for replica in replicas if replica.slot.role == name)
    started = min((child.start_time for child in children if child and child.start_time), default=now)
    return replace(role, without_progress=0) if _is_long(job, now - started, role.without_progress) else role


def _with_replaced(
    job: Job, status: JobStatus, roles: dict[str, RoleStatus], replicas: list[Replica]
) -> dict[str, RoleStatus]:
    """The roles, those with a new attempt with the restarts in place of the replicas that it replaces."""
    replaced = dict.fromkeys(roles, 0)
    for replica in replicas:
        name, before = replica.slot.role, status.role(replica.slot.role).attempt
        if replica.child and before <= replica.child.attempt and name in roles and roles[name].attempt > before:
            replaced[name] += restarts_of_replica(job, replica)
    return {name: replace(role, in_place=role.in_place + replaced[name]) for name, role in roles.items()}


def after_attempt(job: Job, replica: Replica, role: RoleStatus) -> RoleStatus:
    """The role with the ended attempt of one of its replicas that restart alone counted in `without_progress`. It is
    called once for each attempt: such an attempt has no number by which `plan_restarts` could tell that it is counted.
    """
    termination = replica.termination
    if job.restart_scope is not RestartScope.SLOT or termination is None or termination.fails_job:
        return role
    before = role.without_progress
    return replace(role, without_progress=0 if made_progress(job, termination, before) else before + 1)


def retry_at(job: Job, termination: Termination, without_progress: int, now: float) -> float:
    """When a slot is retried after `termination`, which may be a failure or a disruption. `without_progress`: attempts
    of its role in a row before this one that made none.

    A slot that restarts alone waits at most BASE_DELAY, from its start: the others wait for it, and the count is one of
    all slots of the role.
    """
    ended, started = termination.finished_at, termination.started_at
    if made_progress(job, termination, without_progress) or not without_progress:
        return now
    is_alone = job.restart_scope is RestartScope.SLOT
    due = (started or ended) + BASE_DELAY if is_alone else ended + backoff(without_progress + 1)
    # A time in the future was written with a wrong clock; the job must not wait for it.
    return due if max(ended, started) <= now + BASE_DELAY else now


def _next_attempts(
    status: JobStatus, names: Iterable[str], roles: dict[str, RoleStatus], without_progress: int | None = None
) -> dict[str, RoleStatus]:
    """`without_progress`: None leaves it as it is."""
    return {
        name: replace(
            roles[name],
            attempt=status.role(name).attempt + 1,
            without_progress=roles[name].without_progress if without_progress is None else without_progress,
        )
        for name in names
    }


def _has_new_attempt(status: JobStatus, roles: dict[str, RoleStatus]) -> bool:
    return any(role.attempt != status.role(name).attempt for name, role in roles.items())


def _count(causes: dict[RestartCause, int], cause: RestartCause) -> None:
    causes[cause] = causes.get(cause, 0) + 1


def _due_in_place(role: RoleStatus, exceeded: RoleFailure, replicas: list[Replica], now: float) -> float:
    """When all replicas restart because those of this role were restarted in place too often: the containers have not
    ended, so that the back-off begins with the attempt. Each attempt has the kubelet's own back-off anew."""
    children = (replica.child for replica in replicas if replica.slot.role == exceeded.role)
    started = min((child.start_time for child in children if child and child.start_time), default=now)
    return started + backoff(role.without_progress + 1) if started <= now + BASE_DELAY else now


def _limits_of_roles(
    job: Job, status: JobStatus, roles: dict[str, RoleStatus], exceeded: RoleFailure | None, is_counted: bool
) -> tuple[JobStatus, dict[str, RoleStatus]]:
    """The status and the roles of a gang that restarts or resumes, for Role.backoff_limit. The failures of its last
    attempt count as counted, also those that come before its pods are deleted: they are none of the next attempt. If a
    limit is exceeded, all begin anew; where only restarts in place have exceeded it (`is_counted` is False), that is a
    failure."""
    if all(role.backoff_limit is None for role in job.roles):
        return status, roles
    keys = dict.fromkeys(f"attempt-{role.attempt}" for role in job.status.roles.values())
    new = (key for key in keys if key not in status.counted_failures)
    status = replace(status, counted_failures=(*status.counted_failures, *new))
    if exceeded is None:
        return status, roles
    count = status.restarts_count_towards_max + exceeded.is_limited
    failures = {name: role.failures + (not is_counted and name == exceeded.role) for name, role in roles.items()}
    roles = {
        name: replace(role, failures=failures[name], failures_before=failures[name]) for name, role in roles.items()
    }
    return replace(status, restarts_count_towards_max=count), roles


def _lost(
    job: Job, replicas: list[Replica], owned: OwnedObjects, status: JobStatus, stall: str, exceeded: RoleFailure | None
) -> tuple[str, RestartCause]:
    """Why all replicas restart without the end of one, "" if they do not, and its cause."""
    if exceeded:
        return f"{exceeded.text}: all replicas restart", "program"
    if stall:
        return stall, "stall"
    text, reason = _lost_member(job, replicas, owned, status)
    return text, disruption_cause(reason)


def _lost_member(job: Job, replicas: list[Replica], owned: OwnedObjects, status: JobStatus) -> tuple[str, str]:
    """Why a gang restarts that has lost a replica without a failure, and the reason in the status of its Pod where that
    is known; "" when it has lost none: another client has deleted its Pod while it ran, as a drain does, or its Job. A
    Pod in Terminating, or one without owner, shows that. If it is gone before the next reconcile, it is created again
    (S19), and `gang` of the status shows that it is another one. Before all replicas have run, that is all: none of
    them has begun without the others."""
    if not job.restarts_gang():
        return "", ""
    for replica in replicas:
        pod = replica.child
        is_running_pod = pod is not None and pod.kind == POD.kind and pod.phase == "Running"
        if pod and is_running_pod and pod.deleting and pod.attempt == status.role(replica.slot.role).attempt:
            cause = f" ({': '.join(filter(None, (pod.reason, pod.message)))})" if pod.disrupted else ""
            return f"Pod {pod.name} was deleted while it ran{cause}: all replicas restart", pod.reason
    empty = {replica.slot for replica in replicas if replica.child is None}
    for pod in owned.pods_without_owner:
        current = pod.phase != "Succeeded" and pod.attempt == status.role(pod.role).attempt
        if current and Slot(pod.role, pod.index) in empty:
            return f"the batch Job of {pod.role} {pod.index} was deleted: all replicas restart", ""
    children = _children(job, replicas, status)
    if not (children and job.status.gang and _same_size(job, status)) or same_digest(job.status.gang, _uids(children)):
        return "", ""
    newest = max(children, key=lambda child: child.created)
    return f"{newest.kind} {newest.name} was created again after all replicas had run: all replicas restart", ""


def _gang(job: Job, replicas: list[Replica], status: JobStatus) -> str:
    """JobStatus.gang of the next status; "" for a new attempt. After a replica has ended for good, a missing one may
    have ended, too: then it is created again alone."""
    if not job.restarts_gang() or any(replica.state in ("Succeeded", "Failed") for replica in replicas):
        return ""
    if any(role.attempt != job.status.role(name).attempt for name, role in status.roles.items()):
        return ""
    if job.status.gang and _same_size(job, status):
        return job.status.gang
    return _uids(_children(job, replicas, status)) if all(replica.state == "Running" for replica in replicas) else ""


def _children(job: Job, replicas: list[Replica], status: JobStatus) -> list[Child]:
    """The child of each replica, if all have one of the current attempt that is not being deleted; else none."""
    children = [replica.child for replica in replicas if replica.child and not replica.child.deleting]
    current = [child for child in children if child.attempt == status.role(child.role).attempt]
    return current if len(current) == len(replicas) else []


def _uids(children: list[Child]) -> str:
    return digest(sorted(child.uid for child in children))


def _same_size(job: Job, status: JobStatus) -> bool:
    return all(role.replicas == job.status.role(name).replicas for name, role in status.roles.items())
