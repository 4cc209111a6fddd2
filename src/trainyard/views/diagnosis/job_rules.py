"""Findings from the job object itself: its metadata, spec and conditions."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.core.diagnosis import BLOCK, END, FINE, NOTE, WAIT, Finding
from trainyard.core.gangs import GANG_IGNORED
from trainyard.core.job_state import STALLED
from trainyard.core.policies.managed_by import is_managed_here
from trainyard.core.policies.restart import RETRYABLE
from trainyard.core.policies.restart_limit import EXCEEDED, RESTART_LIMIT
from trainyard.objects import Json, format_time, namespace_of, parse_time
from trainyard.objects.numbers import times_text
from trainyard.objects.usage import FILES_SAVED, KILLED_AFTER_GRACE_PERIOD
from trainyard.views.diagnosis.children import children_without_pods, next_requeue, succeeded_without_pods
from trainyard.views.diagnosis.doubts import doubts
from trainyard.views.diagnosis.failures import failed
from trainyard.views.diagnosis.gangs import GATE, queue_evidence, scheduler_without_groups
from trainyard.views.diagnosis.inputs import Facts, join_names
from trainyard.views.diagnosis.replicas import together
from trainyard.views.diagnosis.waiting_reasons import missing_object
from trainyard.views.durations import format_age, format_clock
from trainyard.views.job_view import NO_REPLICAS, job_result

FAILED_CONDITION = "status.conditions[Failed]"
RECONCILE_SECONDS = 10.0  # seconds in which an operator first reconciles a new job
NORMAL_CONDITIONS = frozenset({"Created", "Running", "Suspended", "Succeeded", "Failed", "Complete", "Restarting"})

FAILURE_FIXES = {
    "DeadlineExceeded": "raise {activeDeadlineSeconds}, or make the job faster; then make the job again",
    "BackoffLimitExceeded": "mend what fails, or raise {backoffLimit}; then make the job again",
    EXCEEDED: f"mend what fails or hangs, or raise the annotation {RESTART_LIMIT}; then make the job again",
    "InvalidSpec": "mend the spec and make the job again; `trainyard lint` shows every problem",
    "InvalidChild": "mend the template of that replica and make the job again",
    "PermanentFailure": "mend the program or its arguments and make the job again",
}
PROBLEM_CONDITIONS = {
    "NameConflict": (BLOCK, "an object of another owner has the name of one of its children"),
    "Blocked": (BLOCK, "the API server rejects one of its children, or creates no pod for it"),
    "NotAdmitted": (BLOCK, "its gang scheduler has not admitted it, so no pod is created for it"),
    "GangHeld": (BLOCK, "kube-scheduler holds the pods of its gang"),
    "GangUnschedulable": (BLOCK, "kube-scheduler cannot place its gang, so none of its pods starts"),
    "QueuedAlone": (BLOCK, "Kueue holds some of its parts back, so that they may never run together"),
    STALLED: (BLOCK, "it makes no progress: a replica has stopped, and the others wait for it"),
    "Degraded": (BLOCK, "a replica has failed for good, and the job cannot replace it"),
    "DeploymentUnavailable": (NOTE, "an object beside its replicas, such as a Deployment, is not available"),
    "SpecChangeIgnored": (NOTE, "an edit of its spec has no effect"),
    "UnknownFields": (NOTE, "its spec has unknown fields, which are ignored"),
    "AnnotationIgnored": (NOTE, "an annotation has a value that is not understood"),
    GANG_IGNORED: (NOTE, "its pods are scheduled one by one, and not as a gang"),
}
PROBLEM_CONDITION_FIXES = {
    "NameConflict": "delete or rename that object, or give this job another name",
    "DeploymentUnavailable": "mend what the message names; the job goes on",
    "Degraded": "see the logs of that replica; mend it and make the job again, or suspend and resume it",
    STALLED: "see its logs and where it waits (`py-spy dump --pid PID`); with the annotation "
    "`trainyard.dev/on-stall: restart` such a job is restarted",
    "SpecChangeIgnored": "suspend the job, edit it and resume it; or make a new job",
    "UnknownFields": "check the spelling; `trainyard lint` names each",
    GANG_IGNORED: f"start kube-apiserver, kube-scheduler and kube-controller-manager with {GATE}, and kube-apiserver "
    "with --runtime-config=scheduling.k8s.io/v1beta1=true, too",
    "AnnotationIgnored": "correct the annotation of the job; `trainyard lint` says which values it may have",
}
BLOCKED_FIXES = {
    "QuotaExceeded": "raise the ResourceQuota of the namespace, free some of it, or ask for less in the template",
    "Forbidden": "grant the operator the permission that the message names, or mend the name of the ServiceAccount",
    "NotFound": "make what the message names",
    "PodSecurity": "mend in the template what the message lists, or ask for another level of the namespace",
    "AdmissionPolicy": "mend in the template what the policy asks for, or ask whoever keeps that policy",
    "AdmissionWebhook": "mend in the template what the webhook asks for, or ask whoever keeps that webhook",
    "LimitRange": "write requests and limits that `kubectl describe limitranges` allows in the namespace",
    "PodTerminating": "see whether the node of that pod answers; set --node-lost-timeout, or delete the pod by force; "
    "if only its finalizers keep it, see whose they are",
    "NotAdmitted": "see `kubectl describe` of the PodGroup and its queue: it may be full, or its scheduler not run",
    "GangHeld": "see the findings about its pods: whether one does not exist, or has a scheduling gate",
    "GangUnschedulable": "see the findings about its pods: what the one that fits nowhere asks for",
    "QueuedAlone": "name the kind in externalFrameworks of Kueue's configuration, with manageJobsWithoutQueueName, or "
    "leave out its namespace there and make no LocalQueue `default` in it",
    "NoPod": "see `kubectl describe` of the object that the message names: its events say who refuses the pod",
}


POD_GROUP_FIX = "mend runPolicy.schedulingPolicy of the job, such as its queue, as the message says"
REFUSALS = frozenset({"AdmissionPolicy", "AdmissionWebhook"})
"""Reasons of Blocked that name who refuses an object."""


def managed_elsewhere(facts: Facts) -> Iterator[Finding]:
    """`spec.managedBy` names another controller."""
    managed_by = facts.parsed_job.policy.managed_by
    if not is_managed_here(facts.parsed_job):
        summary = f"the job is managed by {managed_by}: Trainyard makes no request for it"
        place = ".".join(facts.parsed_job.kind.api.policy_path("managedBy"))
        yield Finding(BLOCK, summary, place, (), f"ask that controller; or make the job again without {place}")


def terminating(facts: Facts) -> Iterator[Finding]:
    """The job is being deleted, and what that waits for."""
    metadata = facts.job["metadata"]
    if deleted_at := metadata.get("deletionTimestamp"):
        finalizers = ", ".join(metadata.get("finalizers") or ())
        fix = f"whoever set {finalizers} must take it away" if finalizers else "nothing: its children go first"
        seconds = facts.age(deleted_at)
        yield Finding(BLOCK, f"the job is being deleted{_for_duration(seconds)}", "metadata.deletionTimestamp", (), fix)


MAX_STOPS = 8  # replicas
JOB_FAILURE_REASONS = frozenset({"DeadlineExceeded", "InvalidSpec", "InvalidChild", EXCEEDED})
"""Reasons of the Failed condition that no terminated container explains. A stalled job exceeds its restart limit, too,
and then no container has failed: those of the last attempt were stopped."""
CRASHED_UNTIL_DEADLINE_FIX = (
    "mend what makes its program end (`{logs}`), then make the job again; a longer {activeDeadlineSeconds} "
    "does not help"
)


def lost_output(facts: Facts) -> Iterator[Finding]:
    """Output that could not be written to its log: the last event of each pod."""
    messages = {
        str((event.get("involvedObject") or {}).get("name")): str(event.get("message"))
        for event in facts.events
        if event.get("reason") == "OutputLost"
    }
    if messages:
        evidence = tuple(message.rpartition("; ")[0] for message in messages.values())
        fix = next(iter(messages.values())).rpartition("; ")[2]
        yield Finding(NOTE, f"output of {join_names(messages)} is lost", "events: OutputLost", evidence, fix)


def stopped_replicas(facts: Facts) -> Iterator[Finding]:
    """What the replicas did with their grace period when they were stopped last: from where the next attempt starts."""
    stops = {
        str((event.get("involvedObject") or {}).get("name")): event
        for event in facts.events
        if event.get("reason") in (FILES_SAVED, KILLED_AFTER_GRACE_PERIOD)
    }
    if stops:
        killed = [name for name, event in stops.items() if event.get("type") == "Warning"]
        what = "killed after the grace period" if killed else "files saved before the last stop"
        summary = f"{what}: {join_names(killed or stops)}"
        evidence = [
            f"{name}, {format_age(facts.age(event.get('lastTimestamp')) or 0.0)} ago: {event.get('message')}"
            for name, event in stops.items()
        ]
        fix = "give it more time: raise terminationGracePeriodSeconds of its template" if killed else ""
        where = f"events: {FILES_SAVED}, {KILLED_AFTER_GRACE_PERIOD}"
        yield Finding(NOTE, summary, where, tuple(evidence[:MAX_STOPS]), fix)


def ended_job(facts: Facts) -> Iterator[Finding]:
    """How the job ended. If a container's failure is the cause, only the findings of `failures.failed`."""
    condition_type = job_result(facts.job)
    job_condition = facts.true_condition(condition_type) or {}
    message = str(job_condition.get("message") or facts.status.get("reason") or "")
    if condition_type == "Succeeded" and (in_doubt := doubts(facts)):
        yield from in_doubt
    elif condition_type == "Succeeded":
        start, completion = (parse_time(facts.status.get(name)) for name in ("startTime", "completionTime"))
        duration = f", after {format_clock(completion - start)}" if start is not None and completion is not None else ""
        yield Finding(FINE, f"it succeeded{_finished_ago(facts)}{duration}", "status", tuple(filter(None, [message])))
    elif condition_type == "Failed":
        reason = facts.parsed_job.status.failure_cause
        failures = list(failed(facts))
        if not failures or reason in JOB_FAILURE_REASONS:
            summary = f"it failed{_finished_ago(facts)}" + (f" ({reason})" if reason else "")
            fix = FAILURE_FIXES.get(reason, "mend what is named here and make the job again")
            restarts = facts.status.get("restarts")
            if reason == "DeadlineExceeded" and isinstance(restarts, int) and restarts > 0:
                summary += f"; before that its replicas ended and were started again, {times_text(restarts)}"
                fix = CRASHED_UNTIL_DEADLINE_FIX.replace("{logs}", facts.command("logs"))
            if reason == "InvalidChild" and "refused PodGroup " in message:
                fix = f"{POD_GROUP_FIX}, and make the job again"
            for field in ("activeDeadlineSeconds", "backoffLimit"):
                fix = fix.replace(f"{{{field}}}", policy_field(facts.spec, field))
            yield Finding(END, summary, FAILED_CONDITION, tuple(filter(None, [message])), fix)
        yield from failures


def policy_field(spec: Json, name: str) -> str:
    """Where the spec has a policy: in itself, or in a part of it, such as spec.master or spec.runPolicy."""
    parts = [part for part, value in spec.items() if isinstance(value, dict) and value.get(name) is not None]
    return f"spec.{name}" if spec.get(name) is not None or not parts else f"spec.{parts[0]}.{name}"


def heading(facts: Facts) -> str:
    """The line above the findings: the job and, for a failed one, when and with which reason it failed."""
    if job_result(facts.job) != "Failed":
        return f"{facts.title}{' succeeded, which is in doubt' if doubts(facts) else ''}:"
    reason = facts.parsed_job.status.failure_cause
    return f"{facts.title} failed{_finished_ago(facts)}" + (f" ({reason}):" if reason else ":")


def _finished_ago(facts: Facts) -> str:
    seconds = facts.age(facts.status.get("completionTime"))
    return f" {format_age(seconds)} ago" if seconds is not None else ""


def not_reconciled(facts: Facts) -> Iterator[Finding]:
    """The status is empty: no operator has reconciled the job."""
    if facts.status.get("conditions") or facts.status.get("phase"):
        return
    seconds = facts.age(facts.job["metadata"].get("creationTimestamp"))
    if seconds is not None and seconds < RECONCILE_SECONDS:
        yield Finding(
            WAIT, "it has just been created, and the operator has not reconciled it yet", "status", (), "wait a moment"
        )
        return
    fix = (
        "see that the operator runs: on this machine `trainyard status` names its log, elsewhere `kubectl get pods -A`"
    )
    evidence = (f"status is empty{_for_duration(seconds)}",)
    yield Finding(BLOCK, "no operator reconciles it", "status", evidence, fix)


def suspended(facts: Facts) -> Iterator[Finding]:
    """The job is suspended, or being resumed."""
    if condition := facts.true_condition("Suspended"):
        seconds = facts.age(condition.get("lastTransitionTime"))
        if facts.parsed_job.policy.suspend:
            place = ".".join(facts.kind.api.policy_path("suspend"))
            yield Finding(BLOCK, f"it is suspended{_for_duration(seconds)}", place, (), facts.command("resume"))
        else:
            yield Finding(WAIT, "it is being resumed", "status.conditions[Suspended]", (str(condition.get("message")),))


def problem_conditions(facts: Facts) -> Iterator[Finding]:
    """Conditions that report a problem. Those of unknown types are reported with their own reason and message."""
    aliases = set(facts.kind.status.condition_aliases.values())
    for condition in facts.conditions:
        condition_type = str(condition.get("type"))
        if condition.get("status") != "True" or condition_type in NORMAL_CONDITIONS or condition_type in aliases:
            continue
        if condition_type == "Blocked" and condition.get("reason") == "NoPod" and any(children_without_pods(facts)):
            continue  # children_without_pods has the finding about the child without pods, with its event
        if condition_type == GANG_IGNORED and any(scheduler_without_groups(facts)):
            continue  # which has the finding about the part of the cluster
        reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
        level, summary = (
            PROBLEM_CONDITIONS.get(reason)
            or PROBLEM_CONDITIONS.get(condition_type)
            or (WAIT, f"its condition {condition_type} is True")
        )
        fix = PROBLEM_CONDITION_FIXES.get(reason) or PROBLEM_CONDITION_FIXES.get(condition_type, "")
        if condition_type == "Blocked":
            fix = BLOCKED_FIXES.get(reason, "mend what the message names")
            fix = POD_GROUP_FIX if message.startswith("PodGroup ") and reason in REFUSALS else fix
            if missing := missing_object(message, namespace_of(facts.job)):
                summary, fix = f"no pod can be created for it: there is no {missing.kind} {missing.name}", missing.fix
        if condition_type == "NameConflict" and facts.kind.api.has_runtime_id:
            fix = f"{fix} (or RuntimeId)"
        kind_texts = facts.kind.diagnosis.condition_texts
        summary, fix = kind_texts.get(reason) or kind_texts.get(condition_type) or (summary, fix)
        evidence = tuple(filter(None, [message]))
        if reason == "NotAdmitted":
            evidence += queue_evidence(facts)
        yield Finding(level, summary, f"status.conditions[{condition_type}], {reason}", evidence, fix)


def ineffective(facts: Facts) -> Iterator[Finding]:
    """Fields that have no effect where the job runs, with the texts of `trainyard lint`."""
    for note in facts.notes:
        yield Finding(NOTE, note.text, note.path)


def restarting(facts: Facts) -> Iterator[Finding]:
    """The operator creates a replica again, and the failed pod with the cause is deleted."""
    failed_pods = any((pod.get("status") or {}).get("phase") == "Failed" for _, pod in facts.replicas)
    if (restarting := facts.true_condition("Restarting")) and not failed_pods:
        restart_at = next_requeue(facts)
        when_text = (
            f" at {format_time(restart_at)} (in {format_age(restart_at - facts.now)})" if restart_at is not None else ""
        )
        summary = f"a replica has ended and is made again{together(facts)}{when_text}"
        message = str(restarting.get("message") or "")
        evidence = tuple(filter(None, [message]))
        cause = "its logs say why it ended"
        if RETRYABLE not in message:
            evidence += tuple(_eviction_texts(facts))[-1:]
            cause = "something outside has ended the pod, such as a scheduler or a drain: the program has not failed"
        yield Finding(WAIT, summary, "status.conditions[Restarting]", evidence, f"wait; {cause}")


def _eviction_texts(facts: Facts) -> Iterator[str]:
    """The events of schedulers and drains that take a pod away, the newest last."""
    for event in facts.events:
        if event.get("reason") in ("Evict", "Preempted", "TaintManagerEviction"):
            yield f"event {event['reason']}: {event.get('message')}"


def running(facts: Facts) -> Iterator[Finding]:
    """No problem: how many replicas run, and since when."""
    running_condition = facts.true_condition("Running")
    running = sum(replica.state == "Running" for replica, _ in facts.replicas)
    succeeded = sum(replica.state == "Succeeded" for replica, _ in facts.replicas) + succeeded_without_pods(facts)
    total = max(len(facts.replicas), sum(role.replicas for role in facts.parsed_job.roles))
    if not total:
        yield Finding(BLOCK, NO_REPLICAS, "spec", (), f"scale it: `{facts.command('scale')} NUMBER`")
        return
    if running_condition is None and not running:
        yield Finding(WAIT, "it is being set up, and nothing is wrong so far", "status", (), "wait a moment")
        return
    running_since = (running_condition or {}).get("lastTransitionTime") or facts.status.get("startTime")
    succeeded_text = f", {succeeded} ended well" if succeeded else ""
    counts = f"{running} of {total} replicas run{succeeded_text}"
    evidence = _deadline_note(facts)
    if running + succeeded < total:
        yield Finding(WAIT, f"{counts}; the others have no pod yet", "status", evidence, "wait a moment")
        return
    summary = f"it runs fine{_for_duration(facts.age(running_since))}: {counts}"
    yield Finding(FINE, summary, "status.conditions[Running]", evidence)


def _deadline_note(facts: Facts) -> tuple[str, ...]:
    limit, start = facts.parsed_job.policy.active_deadline_seconds, parse_time(facts.status.get("startTime"))
    if limit is None or start is None:
        return ()
    return (f"activeDeadlineSeconds stops it at {format_time(start + limit)}",)


def _for_duration(seconds: float | None) -> str:
    return "" if seconds is None else f" for {format_age(seconds)}"
