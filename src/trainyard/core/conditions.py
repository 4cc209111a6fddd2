"""The conditions of a job: which hold in this reconcile, and how they are written into its status."""

from __future__ import annotations

from trainyard.core.annotations import annotation_problems
from trainyard.core.children import decode_containers
from trainyard.core.gangs import GANG_IGNORED
from trainyard.core.job_state import STALLED, JobStatus, Outcome, OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.model import Condition, ConditionUpdate, WrittenConditions
from trainyard.core.policies import success_doubt
from trainyard.core.policies.failure_policy import join_texts, termination_text
from trainyard.core.policies.success_policy import GRACE
from trainyard.core.read import describe_ignored_edits, ignores_edits
from trainyard.objects import Json, find_condition, format_time, set_condition
from trainyard.objects.numbers import count_text
from trainyard.objects.resources import DEPLOYMENT

STUCK_REASONS = frozenset(
    {
        "Unschedulable",
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
"""Pod and container reasons that seldom end without a change by a person; conditions report them."""
_ENDED_CONDITIONS = ("Restarting", "Blocked", "NameConflict", STALLED, GANG_IGNORED)  # with the job


def write_conditions(job: Job, replicas: list[Replica], conditions: list[Condition], now: float) -> WrittenConditions:
    """The conditions of the job's stored status, updated in the order of `conditions`, with its kind's messages."""
    if job.kind.status.write_conditions:
        return job.kind.status.write_conditions(job, replicas, conditions, now)
    written: list[Json] = list(job.status.conditions)
    updates: list[ConditionUpdate] = []
    shape = job.kind.status
    for condition_type, holds, reason, message in conditions:
        old = find_condition(written, condition_type)
        if old is None and not holds:
            continue
        update = ConditionUpdate(condition_type, reason, message)
        update = shape.condition_message(job, update, replicas) if holds else update
        for name in filter(None, (condition_type, shape.condition_aliases.get(condition_type))):
            written = _write(job, written, name, holds, update, now)
        if holds and (old is None or old.get("status") != "True" or old.get("reason") != update.reason):
            updates.append(update)
    return WrittenConditions(tuple(written), tuple(updates))


def _write(job: Job, conditions: list[Json], name: str, holds: bool, update: ConditionUpdate, now: float) -> list[Json]:
    old = find_condition(conditions, name)
    conditions = set_condition(conditions, name, holds, update.reason, update.message, now)
    new = find_condition(conditions, name)
    for field in job.kind.status.extra_timestamps:
        if new is not None:
            same = old is not None and all(old.get(key) == value for key, value in new.items())
            new[field] = old.get(field) if same and old else format_time(now)
    return conditions


def phase_conditions(
    job: Job, status: JobStatus, replicas: list[Replica], owned: OwnedObjects, outcome: Outcome
) -> list[Condition]:
    """The conditions that follow from the phase and the spec. `status` is the job's next one."""
    conditions = []
    if outcome.phase != "Invalid":
        count = count_text(sum(role.replicas for role in job.roles), "replica")
        conditions.append(Condition("Created", True, "JobCreated", f"the job is accepted, with {count}"))
    suspended = outcome.phase == "Suspended"
    reason, message = (outcome.reason, outcome.message) if suspended else ("JobResumed", "")
    conditions.append(Condition("Suspended", suspended, reason, message))
    runs = not outcome.is_finished and (outcome.reason == GRACE or job.is_running(replicas))
    message = "; ".join(["at least one replica runs" if runs else outcome.message, *_stuck(replicas)])
    conditions.append(Condition("Running", runs, "JobRunning" if runs else outcome.reason, message))
    conditions.append(_degraded(job, replicas, owned, outcome))
    reason, message = _ignored_edit(job, status)
    conditions.append(Condition("SpecChangeIgnored", bool(message), reason, message))
    unknown = ", ".join(job.parsed.unknown)
    message = f"unknown fields, which have no effect: {unknown}" if unknown else ""
    conditions.append(Condition("UnknownFields", bool(unknown), "UnknownFields", message))
    message = "; ".join(str(problem) for problem in annotation_problems(job))
    conditions.append(Condition("AnnotationIgnored", bool(message), "InvalidValue", message))
    if outcome.is_finished:
        conditions += [Condition(name, False, outcome.reason, "") for name in _ENDED_CONDITIONS]
        if outcome.phase == "Succeeded":
            conditions.append(success_doubt.condition(job, status, replicas, owned))
        name = "Succeeded" if outcome.phase == "Succeeded" else "Failed"
        conditions.append(Condition(name, True, outcome.reason, outcome.message))
    return conditions


def _stuck(replicas: list[Replica]) -> list[str]:
    """One text for each stuck replica, at most three, for the message of condition Running."""
    stuck = [replica for replica in replicas if replica.message in STUCK_REASONS and replica.termination is None]
    return [f"{replica.name} waits: {replica.message}" for replica in stuck[:3]]


def _degraded(job: Job, replicas: list[Replica], owned: OwnedObjects, outcome: Outcome) -> Condition:
    """Condition Degraded: a replica that is not supervised has failed, or a Deployment of the job is not available."""
    supervised = job.supervised_slots()
    failed = [
        replica
        for replica in replicas
        if replica.state == "Failed"
        and (replica.slot not in supervised or (replica.termination and replica.termination.ignored))
    ]
    texts = [f"{replica.name} has failed and is not restarted: {_failure(replica)}" for replica in failed]
    unavailable = _unavailable_deployment(job, owned)
    reason = "ReplicaFailed" if failed else "DeploymentUnavailable" if unavailable else "Restored"
    holds = bool(failed or unavailable) and not outcome.is_finished
    return Condition("Degraded", holds, reason, "; ".join(filter(None, (join_texts(texts), *unavailable))))


def _failure(replica: Replica) -> str:
    """The exit of the replica's container, where it is known: the pod may go before anyone looks."""
    termination = replica.termination
    if termination is None or termination.exit_code < 0:
        return replica.message
    return termination_text(replica, termination).removeprefix(f"{replica.name}: ")


def _unavailable_deployment(job: Job, owned: OwnedObjects) -> list[str]:
    """The reason why a Deployment of the job is not available, at most one."""
    if DEPLOYMENT not in job.kind.roles.child_resources:
        return []
    deployments = {ref.name: child for ref, child in owned.by_ref.items() if ref.kind == DEPLOYMENT.kind}
    texts = [
        f"Deployment {name}: {child.reason}: {child.message}" for name, child in deployments.items() if child.reason
    ]
    for pod in owned.pods_without_owner if deployments and not texts else ():
        reasons = [pod.reason, *(status.reason for status in decode_containers(pod) if status.state == "waiting")]
        if (
            pod.index < 0
            and not pod.deleting
            and (stuck := next((reason for reason in reasons if reason in STUCK_REASONS), ""))
        ):
            texts.append(": ".join(filter(None, (f"Pod {pod.name}", stuck, pod.message))))
    return texts[:1]


def _ignored_edit(job: Job, status: JobStatus) -> tuple[str, str]:
    """Reason and message of condition SpecChangeIgnored; the message is "" when no edit is ignored (S1, S11)."""
    if status.suspended and status.started and not job.policy.suspend:
        return "InvalidSpec", f"{job.parsed.problems[0]}: the job stays suspended until the spec is valid"
    edits = describe_ignored_edits(job.kind, job.parsed, job.status) if ignores_edits(job.parsed, job.status) else []
    if not edits:
        return "SpecRestored", ""
    fix = "the job has started and goes on as it was; suspend it, edit it and resume it, or create a new job"
    return "JobStarted", f"{'; '.join(edits)}: {fix}"
