"""`backoffLimit`: how many failed attempts a job, or a role of it, may have (docs/rules.md S4, S14)."""

from __future__ import annotations

from trainyard.core.job_state import Outcome, Replica, Role
from trainyard.core.kind import Job
from trainyard.core.policies.failure_policy import crash_text, join_texts, termination_text
from trainyard.objects.numbers import count_text


def outcome(job: Job, replicas: list[Replica]) -> Outcome | None:
    """Failed when more attempts have failed than the limit, else None. The job's status has counted all failures."""
    for role in job.roles:
        if role.backoff_limit is not None and (outcome_of_role := _outcome_of_role(job, role, replicas)):
            return outcome_of_role
    text = exceeded(job, restarts_in_place(replicas))
    if not text:
        return None
    if job.policy.backoff_limit is None:
        replicas = [replica for replica in replicas if replica.slot in job.supervised_slots()]
    return Outcome("Failed", "BackoffLimitExceeded", _message(text, replicas))


def _outcome_of_role(job: Job, role: Role, replicas: list[Replica]) -> Outcome | None:
    """Failed when the role has exceeded Role.backoff_limit, else None. As the controller of batch Jobs counts: failed
    pods may be as many as the limit, but so many restarts in place are one too many, unless the limit is 0."""
    limit = role.backoff_limit or 0
    replicas = [replica for replica in replicas if replica.slot.role == role.name]
    failed, in_place = job.status.role(role.name).failures, restarts_in_place(replicas)
    if failed <= limit and in_place < max(limit, 1):
        return None
    text = f"{failed + in_place} failed attempts of {role.name}, whose backoffLimit is {limit}"
    return Outcome("Failed", "BackoffLimitExceeded", _message(text, replicas), role.name)


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
