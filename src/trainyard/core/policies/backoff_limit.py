"""`backoffLimit`: how many failed attempts a job, or a role of it, may have (docs/rules.md S4, S14)."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica, Role, RoleFailure
from trainyard.core.kind import Job
from trainyard.core.policies.failure_policy import crash_text, join_texts, termination_text
from trainyard.objects.numbers import count_text
from trainyard.objects.structs import replace


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Failed when more attempts have failed than the limit, else None. The job's status has counted all failures."""
    failure = role_failure(job, replicas)
    if failure is not None and failure.reason:
        return Outcome("Failed", failure.reason, failure.text, failure.role)
    text = exceeded(job, restarts_in_place(replicas))
    if not text:
        return None
    if job.policy.backoff_limit is None:
        replicas = [replica for replica in replicas if replica.slot in job.supervised_slots()]
    return Outcome("Failed", "BackoffLimitExceeded", _message(text, replicas))


def role_failure(job: Job, replicas: list[Replica]) -> RoleFailure | None:
    """What follows because roles have exceeded Role.backoff_limit; None if none has. As for outcome."""
    texts = {
        role.name: text
        for role in job.roles
        if role.backoff_limit is not None and (text := _exceeded_of_role(job, role, replicas))
    }
    if not texts:
        return None
    failure = job.kind.lifecycle.on_role_failure(job, tuple(texts))
    return replace(failure, text=texts[failure.role])


def _exceeded_of_role(job: Job, role: Role, replicas: list[Replica]) -> str:
    """Why the role has exceeded Role.backoff_limit, "" if it has not. As the controller of batch Jobs counts: failed
    pods may be as many as the limit, but so many restarts in place are one too many, unless the limit is 0."""
    limit, status = role.backoff_limit or 0, job.status.role(role.name)
    replicas = [replica for replica in replicas if replica.slot.role == role.name and is_current(job, replica)]
    failed, in_place = status.failures - status.failures_before, restarts_in_place(replicas)
    if failed <= limit and in_place < max(limit, 1):
        return ""
    text = f"{count_text(failed + in_place, 'failed attempt')} of {role.name}, whose backoffLimit is {limit}"
    return _message(text, replicas)


def is_current(job: Job, replica: Replica) -> bool:
    """Whether the replica is of the current attempt of its role."""
    return replica.child is not None and replica.child.attempt >= job.status.role(replica.slot.role).attempt


def _message(text: str, replicas: list[Replica]) -> str:
    failures = [failure for replica in replicas if (failure := _failure(replica))]
    return "; ".join(filter(None, (text, join_texts(failures))))


def exceeded(job: Job, in_place: int) -> str:
    """Why backoffLimit ends the job, "" when it does not. Without a limit of its own, the kind's default counts the
    supervised roles alone. `in_place`: container restarts by the kubelet."""
    failures = {name: role.failures for name, role in job.status.roles.items()}
    limit = job.policy.backoff_limit
    if limit is not None:
        count = sum(failures.values()) + in_place
        return f"{count_text(count, 'failed attempt')}, backoffLimit is {limit}" if count > limit else ""
    limit = job.kind.lifecycle.default_backoff_limit
    supervised = {slot.role for slot in job.supervised_slots()}
    count = sum(failures.get(role, 0) for role in supervised)
    if limit is None or count <= limit:
        return ""
    return (
        f"{count_text(count, 'failed attempt')} of {', '.join(sorted(supervised))}, backoffLimit is {limit} by default"
    )


def restarts_in_place(replicas: list[Replica]) -> int:
    """Container restarts by the kubelet, of existing pods: those of a deleted pod are no longer observed (S28)."""
    return sum(replica.restart_count for replica in replicas)


def _failure(replica: Replica) -> str:
    """A text about the failure of one replica, as far as it can still be observed; "" if there is none."""
    if replica.termination and not replica.termination.disrupted:
        return termination_text(replica, replica.termination)
    if crash := crash_text(replica):
        return crash
    return f"a pod of {replica.name} failed: see its logs" if replica.failed_attempts else ""
