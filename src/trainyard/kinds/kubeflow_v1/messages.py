"""Reasons, messages and events of `kubeflow.org/v1`, and the counts in its status (docs/rules.md 4.6, 4.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainyard.core import ConditionUpdate, Event, Job, Outcome, PlannedCreate, Replica, default_condition_event
from trainyard.core.policies.restart_limit import EXCEEDED
from trainyard.kinds.kubeflow_v1.conditions import TYPES
from trainyard.kinds.kubeflow_v1.framework import Framework
from trainyard.kinds.kubeflow_v1.gang import POD_GROUPS, deleted_group_events, scheduler_event
from trainyard.kinds.kubeflow_v1.pods import REPLICA_TYPE, job_labels
from trainyard.kinds.pods.templates import spec_of
from trainyard.objects import Json, Ref
from trainyard.objects.resources import HORIZONTAL_POD_AUTOSCALER, POD
from trainyard.objects.writes import Delete

LIMITS = {
    "BackoffLimitExceeded": "Job {name} has failed because it has reached the specified backoff limit",
    "DeadlineExceeded": "Job {name} has failed because it was active longer than specified deadline",
}
PERMANENT_FAILURE = 'job "{name}" is failing because "{role}" replica(s) failed.'
"""The text of an exit code that ExitCode does not retry: the one failure whose event is a warning."""


def condition_message(
    framework: Framework, job: Job, update: ConditionUpdate, replicas: Sequence[Replica]
) -> ConditionUpdate:
    """The update with the Training Operator's reason and text; a failure's cause follows the text."""
    if update.type not in TYPES:
        return update
    if update.reason == EXCEEDED:
        return ConditionUpdate(update.type, f"{framework.kind}{update.type}", f"{EXCEEDED}: {update.message}")
    kind, name = framework.kind, job.key.name
    subject = f"{kind} {job.key.namespace}/{name}" if framework.qualified(job) else f"{kind} {name}"
    texts = {
        "Created": f"{kind} {name} is created.",
        "Running": f"{subject} is running.",
        "Succeeded": f"{subject} {'' if framework.qualified(job) else 'is '}successfully completed.",
        "Suspended": f"{kind} {name} is suspended.",
        "JobResumed": f"{kind} {name} is resumed.",
        **{
            state: text.format(kind=kind, name=name, namespace=job.key.namespace)
            for state, text in framework.texts.items()
        },
    }
    state = "Resumed" if update.reason == "JobResumed" else update.type
    text = texts.get(update.reason) or texts.get(update.type)
    if text is None:
        text = _failure_text(framework, job, update, replicas)
    return ConditionUpdate(update.type, f"{kind}{state}", text)


def _failure_text(framework: Framework, job: Job, update: ConditionUpdate, replicas: Sequence[Replica]) -> str:
    """The text of Restarting or Failed, and then the cause: replica, container, exit code, advice."""
    name = job.key.name
    failed = [replica for replica in replicas if replica.termination and not replica.termination.ignored]
    final = [replica for replica in failed if replica.termination and replica.termination.fails_job]
    role = next((replica.slot.role for replica in [*final, *failed]), "")
    count = sum(replica.slot.role == role for replica in failed)
    if update.reason in LIMITS:
        text = LIMITS[update.reason].format(name=name)
    elif not role:
        return update.message
    elif update.type == "Restarting":
        text = framework.restarting_text.format(name=name, namespace=job.key.namespace, count=count, role=role)
    elif framework.restart_policy_of(role, framework.replica_spec(job, role)) == "ExitCode":
        text = PERMANENT_FAILURE.format(name=name, role=role)
    else:
        text = framework.failed_text.format(
            kind=framework.kind, name=name, namespace=job.key.namespace, count=count, role=role
        )
    return f"{text}{' ' if text.endswith('.') else '; '}{update.message}" if update.message else text


def condition_event(framework: Framework, job: Job, update: ConditionUpdate) -> Event | None:
    """No event for Created and Running; Restarting and a permanent exit code are warnings, the others are Normal."""
    if update.type not in TYPES:
        return default_condition_event(update)
    if update.type in ("Created", "Running"):
        return None
    is_warning = update.type == "Restarting" or update.message.startswith(PERMANENT_FAILURE.partition("{")[0])
    return Event("Warning" if is_warning else "Normal", update.reason, update.message)


def write_events(framework: Framework, job: Job, subject: PlannedCreate | Delete | Replica) -> tuple[Event, ...]:
    """An event for each object created or deleted, but a created PodGroup and an autoscaler, and for each Pod that
    failed."""
    if isinstance(subject, Replica):
        termination, pod = subject.termination, subject.child
        code = termination.exit_code if termination else -1
        text = f"Pod: {job.key.namespace}.{pod.name if pod else '?'} exited with code {code}"
        return (Event("Normal", "ExitedWithCode", text),) if code >= 0 else ()
    if subject.gvk == job.kind.gvk:
        return (Event("Normal", "SuccessfulDeleteJob", f"Deleted job: {subject.name}"),)
    if subject.gvk == HORIZONTAL_POD_AUTOSCALER:
        return ()
    kind, creates = subject.gvk.kind, isinstance(subject, PlannedCreate)
    if subject.gvk in framework.silent_resources:
        return ()
    if subject.gvk in POD_GROUPS:
        return () if creates else deleted_group_events(subject.name)
    event = Event(
        "Normal",
        f"Successful{'Create' if creates else 'Delete'}{kind}",
        f"{'Created' if creates else 'Deleted'} {kind.lower()}: {subject.name}",
        subject.ref if creates else None,
    )
    return (*_template_events(framework, job, subject), event)


def _template_events(framework: Framework, job: Job, subject: PlannedCreate | Delete) -> tuple[Event, ...]:
    """Warnings for a created Pod: its template has a restartPolicy, which that of the role overrides, or another
    scheduler than the gang scheduler."""
    if not isinstance(subject, PlannedCreate) or subject.gvk != POD or subject.slot is None:
        return ()
    template = framework.replica_spec(job, subject.slot.role).get("template")
    events = scheduler_event(job, subject, template)
    if not spec_of(template).get("restartPolicy"):
        return events
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    return (Event("Warning", "SetPodTemplateRestartPolicy", text, Ref("Pod", subject.name)), *events)


def render_status(framework: Framework, job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """`replicaStatuses`, and `state`, which the Training Operator does not write."""
    running_succeeded = outcome.phase == "Succeeded" and framework.running_succeed
    ready = {"ready": f"0/{sum(role.replicas for role in job.roles)}"} if running_succeeded else {}
    return {
        "state": "Failed" if outcome.phase == "Invalid" else outcome.phase,
        "replicaStatuses": {
            role: _replica_status(framework, job, role, states, running_succeeded) for role, states in counts.items()
        },
        **ready,
    }


def _replica_status(
    framework: Framework, job: Job, role: str, states: Mapping[str, int], running_succeeded: bool
) -> Json:
    active, succeeded = states.get("Running", 0), states.get("Succeeded", 0)
    counts = {
        "active": 0 if running_succeeded else active,
        "failed": states.get("Failed", 0),
        "succeeded": succeeded + active if running_succeeded else succeeded,
    }
    status: Json = {name: count for name, count in counts.items() if count}
    if framework.selector_in_status:
        labels = {**job_labels(framework, job), REPLICA_TYPE: role.lower()}
        status["selector"] = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return status
