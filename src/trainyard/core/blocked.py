"""What keeps a job from going on: refused writes, missing pods, pods that do not end.

An invalid child ends the job; everything else is reported in the conditions Blocked and NameConflict and retried.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.core import changes
from trainyard.core.conditions import Condition
from trainyard.core.job import NO_POD, Job, Outcome, OwnedObjects, Replica
from trainyard.core.model import Create, Delete, Observed, Patch, Ref, Refusal
from trainyard.core.policies.failure_policy import invalid_child
from trainyard.core.writes import plan_writes
from trainyard.objects import format_time

PODLESS_SECONDS = 30.0
"""Seconds that a missing pod, or a pod past its grace period, may take before condition Blocked reports it."""


class Blocks(NamedTuple):
    """`outcome`: the end of the job, if the API server refuses a child for good."""

    outcome: Outcome | None
    conditions: list[Condition]
    wakeups: tuple[float, ...]


class _Wait(NamedTuple):
    """A text for condition Blocked, or when it will be due; "" and None when nothing is waited for."""

    message: str = ""
    due: float | None = None


def find_blocks(
    job: Job,
    replicas: list[Replica],
    owned: OwnedObjects,
    observed: Observed,
    outcome: Outcome,
    alone: tuple[Replica, ...],
    now: float,
) -> Blocks:
    """`job` has its next status. While it is suspended no child is created, so refused creates are not reported. In a
    role that follows edits, an invalid child does not end a job that has run."""
    creates = changes.missing_creates(job, owned) if outcome.phase != "Suspended" else []
    needed = {create.ref: create for create in creates}
    refused_creates = {ref: refusal for ref, refusal in observed.refused.items() if refusal.verb == "create"}
    refused = {ref: refusal for ref, refusal in refused_creates.items() if ref in needed}
    for ref, refusal in refused.items():
        slot = needed[ref].slot
        if refusal.invalid and not (job.status.ran and slot and job.kind.on_template_change(slot.role)):
            return Blocks(invalid_child(refusal, f"{ref.kind} {ref.name}", job.status.ran), [], ())
    clashes = {ref: refusal for ref, refusal in refused.items() if refusal.code == 409}
    blocks = {ref: refusal for ref, refusal in refused.items() if refusal.code != 409}
    wakeups: list[float] = []
    if len(refused_creates) < len(observed.refused):
        writes = plan_writes(job, replicas, owned, observed, outcome, alone, now)
        sent: list[Delete | Patch] = [*writes.deletes, *writes.patches]
        due = {(write.ref, changes.verb(write)) for write in sent}
        blocks |= {ref: refusal for ref, refusal in observed.refused.items() if (ref, refusal.verb) in due}
    podless = _podless(job, replicas, owned, now)
    overdue = _overdue(job, owned, creates, now)
    wakeups += [wait.due for wait in (podless, overdue) if wait.due is not None]
    message = "; ".join(filter(None, (_refusals(blocks), podless.message, overdue.message)))
    reasons = {refusal.policy or refusal.reason or "Refused" for refusal in blocks.values()}
    waits = "NoPod" if podless.message else "PodTerminating" if overdue.message else "Unblocked"
    conditions = [
        Condition("NameConflict", bool(clashes), "NameTaken" if clashes else "NameFree", _refusals(clashes)),
        Condition("Blocked", bool(message), min(reasons) if reasons else waits, message),
    ]
    return Blocks(None, conditions, tuple(wakeups))


def _refusals(refused: dict[Ref, Refusal]) -> str:
    return "; ".join(f"{ref.kind} {ref.name}: {refusal.message}" for ref, refusal in sorted(refused.items())[:3])


def _podless(job: Job, replicas: list[Replica], owned: OwnedObjects, now: float) -> _Wait:
    """Waits for the first pod of a child whose controller has created none for PODLESS_SECONDS; its events say why.

    The time counts from the newest pod, so that a job whose thousand pods come one after another is not reported, and
    never from before the job was resumed.
    """
    podless = [(replica, replica.child) for replica in replicas if replica.message == NO_POD and replica.child]
    if not podless or job.status.start_time is None:
        return _Wait()
    created = [pod.created for pods in owned.pods_by_owner.values() for pod in pods]
    due = max(job.status.start_time, *(child.created for _, child in podless), *created) + PODLESS_SECONDS
    if now < due:
        return _Wait(due=due)
    replica, child = podless[0]
    return _Wait(f"{replica.name} waits: {child.kind} {child.name} has no pod, and its events say why")


def _overdue(job: Job, owned: OwnedObjects, creates: list[Create], now: float) -> _Wait:
    """Waits of a new attempt for an older pod that is in Terminating long past its grace period."""
    older = {child.uid for child in changes.older_pods(job, owned)} if creates else set()
    pods = [*owned.pods_without_owner, *(pod for pods in owned.pods_by_owner.values() for pod in pods)] if older else []
    late = [pod for pod in pods if pod.delete_deadline and {pod.uid, pod.owner} & older]
    if not late:
        return _Wait()
    pod = min(late, key=lambda pod: (pod.delete_deadline, pod.name))
    if now < pod.delete_deadline + PODLESS_SECONDS:
        return _Wait(due=pod.delete_deadline + PODLESS_SECONDS)
    return _Wait(
        f"a new attempt waits for Pod {pod.name} of attempt {pod.attempt}, which should have ended at "
        f"{format_time(pod.delete_deadline)}: see whether its node answers, set --node-lost-timeout or delete it "
        "by force"
    )
