"""Decide the new status and the writes of one job, from its object and its observed children.

    observe -> suspend -> count failures -> compute phase -> plan restarts -> find blocks -> plan writes -> status

Each step is a pure function of values and returns a value with its wake-ups: no clock, no I/O, no logging; the same
input gives the same answer. The rules, in the order in which they act:
1. For a job that another controller manages (managedBy), or that is being deleted, nothing is written.
2. A finished job stays finished; only cleanPodPolicy, --node-lost-timeout and the TTL still act.
3. A job whose spec is invalid at its start ends before any child is created.
4. The status patch that counts failed attempts and starts a new attempt is sent before any delete. If the operator
   crashes in between, the next reconcile observes children of an older attempt and deletes them.
5. A name is free when no child has it. A child in Terminating still has its name.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainyard.core import blocked, changes, conditions, failures, phase, pod_warnings, status
from trainyard.core.job_state import Outcome, OwnedObjects, Replica
from trainyard.core.kind import Job, Kind, TemplateSource
from trainyard.core.model import Condition, ConditionUpdate, Event, Observed, ObservedSlots, Plan, PlannedCreate
from trainyard.core.observe import observe
from trainyard.core.planned_writes import PlannedWrites, due_writes, plan_writes
from trainyard.core.policies import (
    backoff_limit,
    clean_pod_policy,
    deadline,
    managed_by,
    node_lost,
    progress,
    restart,
    restart_limit,
    success_doubt,
    success_policy,
    suspend,
    ttl,
)
from trainyard.core.read import parse_job
from trainyard.core.restart_count import count_restarts, pending_restarts
from trainyard.objects import Json, is_deleting
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete

TEMPLATE_RETRY_SECONDS = 5.0
"""The object with the pod templates is not watched."""


def plan(kind: Kind, wire: Json, observed: Observed, now: float) -> Plan:
    """The writes of this reconcile of the job. `now` is seconds since 1970."""
    source = observed.template_source
    return decide(parse_job(kind, wire, observed.config, observed.runtime_ids_in_use, source), observed, now)


def decide(job: Job, observed: Observed, now: float) -> Plan:
    """As plan, for a parsed job."""
    if not managed_by.is_managed_here(job) or is_deleting(job.obj):
        return Plan(job.status.whole)
    if observed.held is not None:
        return _held(job, observed.held)
    if not job.status.outcome and (text := job.kind.status.begun_elsewhere(job.status.whole)):
        return Plan(job.status.whole, pod_warnings=(Event("Warning", "BegunElsewhere", text),))
    if job.kind.template_source and job.parsed.snapshot is None and not job.status.outcome:
        return _without_templates(job, job.kind.template_source, observed, now)
    owned = OwnedObjects.of(job.uid, observed.children)
    return _finished(job, owned, observed, now) if job.status.outcome else _unfinished(job, owned, observed, now)


def _held(job: Job, reason: str) -> Plan:
    """The plan of a job whose kind is not served: an event about a job that this operator has begun. Its pods stay as
    they are."""
    is_ours = job.status.started and not job.status.outcome
    text = f"{reason}, so that this operator restarts and deletes no pod of the job any more"
    return Plan(job.status.whole, pod_warnings=(Event("Warning", "NotServed", text),) if is_ours and reason else ())


def _without_templates(job: Job, source: TemplateSource, observed: Observed, now: float) -> Plan:
    """The plan of a job whose templates cannot be read: an event, and another look."""
    text = observed.template_error or "the object that has the pod templates was not read"
    warning = Event("Warning", source.missing_reason, text)
    return Plan(job.status.whole, requeue_at=now + TEMPLATE_RETRY_SECONDS, pod_warnings=(warning,))


def _unfinished(job: Job, owned: OwnedObjects, observed: Observed, now: float) -> Plan:
    return _plan(_evaluate(job, owned, observed, now), observed, now)


class Evaluation(msgspec.Struct, frozen=True):
    """The results of the steps before "plan writes", for a job whose stored status is not finished. `job` has
    the stored status, `after` the next one."""

    job: Job
    after: Job
    replicas: list[Replica]
    owned: OwnedObjects
    outcome: Outcome
    failed: tuple[Replica, ...] = ()  # those of the newly counted failures
    slot_restarts: tuple[Replica, ...] = ()
    conditions: tuple[Condition, ...] = ()  # those that do not follow from the phase
    wakeups: tuple[float, ...] = ()


def _evaluate(job: Job, owned: OwnedObjects, observed: Observed, now: float) -> Evaluation:
    replicas, wakeups = observe(job, owned, now)
    job = replace(
        job,
        owned=frozenset(owned.by_ref),
        running=frozenset(replica.slot for replica in replicas if replica.state == "Running"),
        succeeded=frozenset(replica.slot for replica in replicas if replica.state == "Succeeded"),
        present=frozenset(replica.slot for replica in replicas if replica.child),
        ungrouped=frozenset(replica.slot for replica in replicas if replica.child and not replica.child.pod_group),
    )
    problem = next(iter(job.parsed.problems), None) or job.kind.config_problem(job)
    if not job.status.started and problem:
        text = f"{problem.text} ({problem.path})" if problem.path else problem.text
        return Evaluation(job, job, replicas, owned, Outcome("Invalid", "InvalidSpec", text))
    is_queued = not any(replica.child for replica in replicas) and bool(changes.blocking_refs(job, owned))
    counted = failures.count_failures(job, replicas, suspend.next_status(job, now, is_queued))
    launch = success_doubt.next_launch(job, replicas, owned, counted.status)
    after = job.with_status(replace(counted.status, launch=launch))
    outcome = phase.compute_phase(after, replicas, now)
    stalled, stall = progress.stalled(after, replicas, owned)
    outcome = _limited(job, after, replicas, owned, outcome, stall, now)
    if outcome.is_finished:
        return Evaluation(job, after, replicas, owned, outcome, failed=counted.replicas)
    grace_end = success_policy.grace_end(after, replicas, now)
    restarted = restart.plan_restarts(job, replicas, owned, after.status, outcome, now, stall)
    after = after.with_status(restarted.status)
    if (ended := restart.ended_slots(job, replicas, after.status)) != after.ended:
        after = replace(after, ended=ended)
    blocks = blocked.find_blocks(after, replicas, owned, observed, outcome, restarted.slots, now)
    return Evaluation(
        job,
        after,
        replicas,
        owned,
        blocks.outcome or outcome,
        failed=counted.replicas,
        slot_restarts=restarted.slots,
        conditions=(restarted.condition, stalled, *blocks.conditions),
        wakeups=(*wakeups, *restarted.wakeups, *blocks.wakeups, *filter(None, (grace_end,))),
    )


def _limited(
    job: Job, after: Job, replicas: list[Replica], owned: OwnedObjects, outcome: Outcome, stall: str, now: float
) -> Outcome:
    """The outcome, or the job's failure by its annotation `restart-limit`."""
    restarts_none = outcome.is_finished or outcome.phase == "Suspended" or outcome.reason == success_policy.GRACE
    if restarts_none or restart_limit.limit_of(job) is None:
        return outcome
    restarts = count_restarts(after, replicas, owned)
    pending = pending_restarts(after, replicas, restarts)
    exceeded = backoff_limit.role_failure(after, replicas)
    uncounted = stall or (exceeded.text if exceeded else "")
    return restart_limit.outcome(job, after.status, replicas, restarts, pending, uncounted, now) or outcome


def _plan(evaluation: Evaluation, observed: Observed, now: float) -> Plan:
    """The last steps of the pipeline: the writes, and the status that reports them."""
    job, after, replicas = evaluation.job, evaluation.after, evaluation.replicas
    owned, outcome = evaluation.owned, evaluation.outcome
    evaluated = [*evaluation.conditions, *conditions.phase_conditions(job, after.status, replicas, owned, outcome)]
    written = conditions.write_conditions(job, replicas, evaluated, now)
    next_status = replace(after.status, conditions=written.conditions)
    if outcome.is_finished:
        cause = outcome.reason if outcome.phase != "Succeeded" else ""
        next_status = replace(next_status, completion_time=now, counted_failures=(), failure_cause=cause, gang="")
    writes = plan_writes(after, replicas, owned, observed, outcome, evaluation.slot_restarts, now)
    sent = due_writes(writes, observed, now)
    deleted = frozenset(delete.uid for delete in sent.deletes) if outcome.is_finished else frozenset()
    counts = status.replica_counts(job, replicas, outcome, deleted)
    restarts = count_restarts(after, replicas, owned)
    recent = () if outcome.is_finished else restart_limit.recent_restarts(job, after.status, restarts, now)
    next_status = replace(next_status, recent_restarts=recent)
    rendered = status.render_status(job, next_status, outcome, counts, restarts, replicas)
    if outcome.is_finished:
        due = [ttl.expires_at(job, now)]
    else:
        due = [*evaluation.wakeups, *sent.wakeups, deadline.expires_at(job, next_status.start_time)]
    return Plan(
        status=rendered,
        status_changed=rendered != job.status.whole,
        spec_patch=None if outcome.is_finished else _spec_patch(job),
        deletes=sent.deletes,
        patches=sent.patches,
        creates=sent.creates,
        events=_events(job, written.updates, evaluation.failed, (*sent.creates, *sent.deletes)),
        requeue_at=_earliest(due),
        urgent=status.is_urgent(job.status.whole, rendered),
        slots=ObservedSlots(after.running, after.succeeded, after.present, after.ended, after.ungrouped),
        pod_warnings=() if outcome.is_finished else pod_warnings.events(replicas, owned),
    )


def _finished(job: Job, owned: OwnedObjects, observed: Observed, now: float) -> Plan:
    """The plan of a finished job: its status never changes; its children are cleaned up, and the TTL deletes it."""
    stored = job.status
    if expired := ttl.expired_objects(job, owned, now):
        sent = due_writes(PlannedWrites(tuple(expired)), observed, now)
        events = _events(job, (), (), sent.deletes)
        return Plan(stored.whole, deletes=sent.deletes, events=events, requeue_at=_earliest(sent.wakeups))
    lost, lost_due = node_lost.force_deletes(job, owned, now)
    clean = clean_pod_policy.effective_policy(job, stored.failure_cause)
    deletes, patches = clean_pod_policy.clean_pods(job, owned, clean, stored.failure_cause or stored.outcome)
    sent = due_writes(PlannedWrites((*lost, *deletes), tuple(patches)), observed, now)
    expiry = ttl.expires_at(job, stored.completion_time)  # once it is over, nothing is left to delete
    due = _earliest((expiry if expiry and expiry > now else None, lost_due, *sent.wakeups))
    events = _events(job, (), (), sent.deletes)
    return Plan(stored.whole, deletes=sent.deletes, patches=sent.patches, events=events, requeue_at=due)


def _events(
    job: Job,
    updates: tuple[ConditionUpdate, ...],
    failed: tuple[Replica, ...],
    sent: tuple[PlannedCreate | Delete, ...],
) -> tuple[Event, ...]:
    """The events of this reconcile: for conditions first, then for new failures, then for creates and deletes."""
    messages = job.kind.status
    condition_event = messages.condition_event or (lambda job, update: status.default_condition_event(update))
    events = [event for update in updates if (event := condition_event(job, update))]
    subjects: tuple[Replica | PlannedCreate | Delete, ...] = (*failed, *sent)
    return (*events, *(event for subject in subjects for event in messages.write_events(job, subject)))


def _spec_patch(job: Job) -> Json | None:
    """The merge patch with the defaults that a schema cannot set; sent once, before the first status (S29)."""
    if job.status.stored.get("conditions"):
        return None
    spec = job.obj.get("spec")
    stored = spec if isinstance(spec, dict) else {}
    return {key: value for key, value in job.parsed.spec.items() if stored.get(key) != value} or None


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)
