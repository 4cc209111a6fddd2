"""What blocks a job: refused writes, missing pods, pods that do not end.

An invalid child fails the job; all else is retried, and the conditions Blocked and NameConflict report it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainyard.core import changes, gangs
from trainyard.core.gangs import Wait
from trainyard.core.job_state import NO_POD, Outcome, OwnedObjects, Replica
from trainyard.core.kind import Job
from trainyard.core.model import Condition, Observed, PlannedCreate, Refusal
from trainyard.core.planned_writes import plan_writes
from trainyard.core.policies.failure_policy import invalid_child
from trainyard.objects import Ref, format_time
from trainyard.objects.writes import Delete, Patch

UNPLACED = ("Unschedulable", "SchedulerError")
"""Phases of a PodGroup of scheduling.k8s.io whose members kube-scheduler does not place."""
NO_POD_SECONDS = 30.0
"""Seconds that a missing pod, or a pod past its grace period, may take before condition Blocked reports it."""


class Blocks(msgspec.Struct, frozen=True):
    """`outcome`: that of a job with an invalid child, else None. `conditions`: Blocked and NameConflict."""

    outcome: Outcome | None
    conditions: list[Condition]
    wakeups: tuple[float, ...]


def find_blocks(
    job: Job,
    replicas: list[Replica],
    owned: OwnedObjects,
    observed: Observed,
    outcome: Outcome,
    slot_restarts: tuple[Replica, ...],
    now: float,
) -> Blocks:
    """The blocks of a job that has its next status. `slot_restarts`: see plan_writes.

    While it is suspended no child is created, so refused creates are not reported. An invalid child does not fail a job
    that has run, if edits take effect on the child's role (Lifecycle.follows_edits).
    """
    creates = changes.missing_creates(job, owned) if outcome.phase != "Suspended" else ()
    needed = {create.ref: create for create in creates}
    refused_creates = {ref: refusal for ref, refusal in observed.refused.items() if refusal.verb == "create"}
    refused = {ref: refusal for ref, refusal in refused_creates.items() if ref in needed}
    for ref, refusal in refused.items():
        slot = needed[ref].slot
        if refusal.invalid and not (job.status.has_run and slot and job.kind.lifecycle.follows_edits(slot.role)):
            return Blocks(invalid_child(refusal, f"{ref.kind} {ref.name}", job.status.has_run), [], ())
    conflicts = {ref: refusal for ref, refusal in refused.items() if refusal.code == 409}
    blocks = {ref: refusal for ref, refusal in refused.items() if refusal.code != 409}
    if len(refused_creates) < len(observed.refused):
        writes = plan_writes(job, replicas, owned, observed, outcome, slot_restarts, now)
        planned_writes: list[Delete | Patch] = [*writes.deletes, *writes.patches]
        planned = {(write.ref, write.verb) for write in planned_writes}
        blocks |= {ref: refusal for ref, refusal in observed.refused.items() if (ref, refusal.verb) in planned}
    edited, waiting = (_without_template(job, replicas), replicas) if outcome.phase != "Suspended" else ("", [])
    missing, terminating = _missing_pod(job, replicas, owned, now), _terminating_pod(job, waiting, owned, creates, now)
    unadmitted = _not_admitted(job, owned, now) if creates else Wait()
    held = gangs.held_members(job, owned, now) if outcome.phase != "Suspended" else Wait()
    ignored, ignored_due = gangs.ignored(job, owned, now)
    wakeups = tuple(filter(None, (missing.due, terminating.due, unadmitted.due, held.due, ignored_due)))
    waits = {"TemplateEdited": edited, **_queues(replicas, owned, outcome), "NotAdmitted": unadmitted.message}
    waits |= {"GangHeld": held.message, "NoPod": missing.message, "PodTerminating": terminating.message}
    message = "; ".join(filter(None, (_refusals_text(blocks), *waits.values())))
    reasons = sorted({refusal.policy or refusal.reason or "Refused" for refusal in blocks.values()})
    reasons += [reason for reason, text in waits.items() if text]
    conditions = [
        Condition("NameConflict", bool(conflicts), "NameTaken" if conflicts else "NameFree", _refusals_text(conflicts)),
        Condition("Blocked", bool(message), next(iter(reasons), "Unblocked"), message),
    ]
    return Blocks(None, [*conditions, ignored], wakeups)


def _queues(replicas: list[Replica], owned: OwnedObjects, outcome: Outcome) -> dict[str, str]:
    """What kube-scheduler or Kueue holds back, by the reason of condition Blocked; "" for nothing."""
    runs = outcome.phase != "Suspended"
    return {
        "QueuedAlone": _held_parts(owned) if runs else "",
        "GangUnschedulable": _unscheduled_gang(replicas, owned) if runs else "",
    }


def _refusals_text(refused: dict[Ref, Refusal]) -> str:
    return "; ".join(f"{ref.kind} {ref.name}: {refusal.message}" for ref, refusal in sorted(refused.items())[:3])


def _not_admitted(job: Job, owned: OwnedObjects, now: float) -> Wait:
    """The wait for the admission of a PodGroup that delays the pods (AuxiliaryObject.blocking_phases). It is reported
    NO_POD_SECONDS after the creation of the group: Volcano admits a job once a second."""
    refs = sorted(changes.blocking_refs(job, owned) & owned.by_ref.keys())
    due = max((owned.by_ref[ref].created for ref in refs), default=now) + NO_POD_SECONDS
    if not refs or now < due:
        return Wait(due=due if refs else None)
    message = "; ".join(
        f"{ref.kind} {ref.name} is {owned.by_ref[ref].phase or 'Pending'}: its scheduler has not admitted the job"
        for ref in refs
    )
    return Wait(message)


def _unscheduled_gang(replicas: list[Replica], owned: OwnedObjects) -> str:
    """What kube-scheduler says of a PodGroup that it cannot place, "" when all replicas run or it says nothing."""
    if all(replica.state != "Starting" for replica in replicas):
        return ""
    groups = [child for child in owned.by_ref.values() if child.kind == "PodGroup" and not child.deleting]
    waiting = sorted((group.name, group.message) for group in groups if group.phase in UNPLACED)
    return "; ".join(f"PodGroup {name} waits: {message}" for name, message in waiting)


def _held_parts(owned: OwnedObjects) -> str:
    """Which children Kueue holds one by one, "" when it holds none. The operator puts no child in a queue."""
    pods = (pod for owned_pods in owned.pods_by_owner.values() for pod in owned_pods)
    held = sorted({(child.kind, child.name, child.queue) for child in (*owned.by_ref.values(), *pods) if child.queue})
    if not held:
        return ""
    kind, name, queue = held[0]
    others = f" and {len(held) - 1} more" if held[1:] else ""
    return f"Kueue holds this part: {kind} {name}{others}, in queue {queue}, and queues each part of the job for itself"


def _without_template(job: Job, replicas: list[Replica]) -> str:
    """Why a lost replica is not created again: its role is not rendered from the template that the job was started
    with, because an edit that the operator ignores has replaced that template."""
    for replica in replicas:
        role = job.role(replica.slot.role)
        if role and role.template is None and replica.child is None:
            fix = "restore the template, or suspend the job and resume it with the new one"
            return f"{replica.name} is gone, and the spec has another template than the job was started with: {fix}"
    return ""


def _missing_pod(job: Job, replicas: list[Replica], owned: OwnedObjects, now: float) -> Wait:
    """The wait for the first pod of a child whose controller has created none for NO_POD_SECONDS; its events say why.

    The time counts from the creation of the newest pod, so that a job whose thousand pods are created one after another
    is not reported, and never from before the job was resumed.
    """
    waiting = [(replica, replica.child) for replica in replicas if replica.message == NO_POD and replica.child]
    if not waiting or job.status.start_time is None:
        return Wait()
    created = [pod.created for pods in owned.pods_by_owner.values() for pod in pods]
    due = max(job.status.start_time, *(child.created for _, child in waiting), *created) + NO_POD_SECONDS
    if now < due:
        return Wait(due=due)
    replica, child = waiting[0]
    return Wait(f"{replica.name} waits: {child.kind} {child.name} has no pod, and its events say why")


def _terminating_pod(
    job: Job, replicas: list[Replica], owned: OwnedObjects, creates: Sequence[PlannedCreate], now: float
) -> Wait:
    """The wait of a new attempt for an older pod that is in Terminating NO_POD_SECONDS past its grace period: one that
    blocks the creates, or one that still has the name of its replica."""
    older = {child.uid for child in changes.blocking_pods(job, owned)} if creates else set()
    older |= {replica.child.uid for replica in replicas if replica.child and replica.child.deleting}
    pods = [*owned.pods_without_owner, *(pod for pods in owned.pods_by_owner.values() for pod in pods)] if older else []
    late = [pod for pod in pods if pod.delete_deadline and {pod.uid, pod.owner_uid} & older]
    if not late:
        return Wait()
    pod = min(late, key=lambda pod: (pod.delete_deadline, pod.name))
    if now < pod.delete_deadline + NO_POD_SECONDS:
        return Wait(due=pod.delete_deadline + NO_POD_SECONDS)
    fix = "see whether its node answers, set --node-lost-timeout or delete it by force"
    if pod.held_by_finalizers:
        fix = "only its metadata.finalizers keep it; see whose they are"
    return Wait(
        f"a new attempt waits for Pod {pod.name} of attempt {pod.attempt}, which should have ended at "
        f"{format_time(pod.delete_deadline)}: {fix}"
    )
