"""The Job controller (batch/v1), for completions 1 and parallelism 1: a training job needs no more.

Flow: a reconcile of one Job and its pods gives the new status, then the pods to delete, then at most one pod to create.

How a failed pod is counted once, without finalizers: a pod has an annotation with k, the number of failed pods of the
Job when it was created, and a name derived from (uid, k). A failed pod therefore proves `failed >= k + 1`, in every
reconcile, and `status.failed` is the maximum of the stored count and of what the pods prove. The count is stored (with
the resourceVersion of the decision) before the next pod is created; a controller that dies between the two creates the
same name again. A failed pod that a user deletes before it was counted is not counted, and its replacement has its k
and its name.

Guarantees:
- a pod in phase Succeeded completes the Job, whatever other pods did;
- a pod that is being deleted counts as failed and is replaced (podReplacementPolicy TerminatingOrFailed, the default),
  unless it was deleted because the Job was suspended;
- the status of a finished Job never changes, and its active pods are deleted.
Not implemented: podFailurePolicy, successPolicy, indexed Jobs.
"""

from __future__ import annotations

from trainyard.core import Event
from trainyard.objects import (
    Json,
    controller_reference,
    exponential_delay,
    format_time,
    is_condition_true,
    is_deleting,
    name_of,
    parse_time,
    set_condition,
    uid_of,
)
from trainyard.objects.labels import PREFIX
from trainyard.objects.resources import JOB, POD
from trainyard.objects.writes import Create
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import status_of
from trainyard.workloads.writes import Decision, UpdateStatus, Write, delete_of

# Annotation of a pod: the number of failed pods of its Job when it was created.
FAILURES_BEFORE = PREFIX + "failures-before"
JOB_CONTROLLER_NAME = "kubernetes.io/job-controller"
INITIAL_BACKOFF, MAX_BACKOFF = 10.0, 360.0  # back-off in seconds


def decide(job: Json, pods: list[Json], now: float) -> Decision:
    """The writes and events for one Job. `pods` are those whose controller owner is this Job."""
    if is_deleting(job) or job["spec"].get("managedBy", JOB_CONTROLLER_NAME) != JOB_CONTROLLER_NAME:
        return Decision()
    if _finished(job):
        return _sync_finished(job, pods, now)
    if any(pod_facts.phase(pod) == "Succeeded" for pod in pods):
        return _complete(job, pods, now)
    failed = _failures(job, pods)
    if failure := _failure(job, pods, failed, now):
        return _fail(job, pods, failed, failure, now)
    if job["spec"].get("suspend"):
        return _suspend(job, pods, failed, now)
    return _sync_running(job, pods, failed, now)


# --- the running Job


def _sync_running(job: Json, pods: list[Json], failed: int, now: float) -> Decision:
    status = dict(status_of(job))
    conditions = status.get("conditions") or []
    if is_condition_true(conditions, "Suspended"):
        status["conditions"] = set_condition(conditions, "Suspended", False, "JobResumed", "Job resumed", now)
    status.setdefault("startTime", format_time(now))
    active = [pod for pod in pods if pod_facts.active(pod)]
    due: list[float] = []
    creates: list[Write] = []
    if not active:
        not_before = _backoff_end(job, pods, failed, now)
        new_pod = _new_pod(job, failed)
        if not_before > now:
            due.append(not_before)
        elif not any(name_of(pod) == name_of(new_pod) for pod in pods):
            creates.append(Create(POD, new_pod))
    _set_counts(status, pods, failed, active=len(active) + len(creates))
    if (deadline := _deadline(job, status)) is not None:
        due.append(deadline)
    return Decision((*_status_update(job, status), *creates), min(due, default=None))


def _backoff_end(job: Json, pods: list[Json], failed: int, now: float) -> float:
    """When the next pod may be created, in seconds since the epoch: 10 s after the last failure, doubled with each
    failure up to six minutes. 0.0 without a failure."""
    delay = exponential_delay(failed, INITIAL_BACKOFF, MAX_BACKOFF)
    finished_at = [_finished_by(pod, now + delay) for pod in pods if _is_failed(job, pod)]
    return max(finished_at) + delay if finished_at and failed else 0.0


def _finished_by(pod: Json, latest: float) -> float:
    """When the pod ended. A time after `latest` is of a clock that has been set back since, or is of another machine:
    then when it was created, by the API server's clock, and 0.0 if that is after `latest`, too."""
    times = (pod_facts.finished_at(pod), parse_time(pod["metadata"].get("creationTimestamp")) or 0.0)
    return next((moment for moment in times if moment <= latest), 0.0)


def _new_pod(job: Json, failed: int) -> Json:
    template = job["spec"].get("template") or {}
    owner = controller_reference("batch/v1", "Job", name_of(job), uid_of(job))
    name = pod_facts.generated_name(name_of(job), pod_facts.name_suffix(uid_of(job), failed))
    pod = pod_facts.pod_from_template(template, job, owner, name)
    pod["metadata"]["labels"] |= pod_labels(name_of(job), uid_of(job))
    pod["metadata"]["annotations"][FAILURES_BEFORE] = str(failed)
    return pod


def pod_labels(name: str, uid: str) -> dict[str, str]:
    """The four labels of a Job's pods, which users and tools select them by."""
    return {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


# --- counting


def _failures(job: Json, pods: list[Json]) -> int:
    """The number of failed pods: the maximum of the stored count and of the count that each failed pod proves."""
    proven = [_failed_before(pod) + 1 for pod in pods if _is_failed(job, pod)]
    return max([int(status_of(job).get("failed") or 0), *proven])


def _failed_before(pod: Json) -> int:
    annotation = str((pod["metadata"].get("annotations") or {}).get(FAILURES_BEFORE, "0"))
    return int(annotation) if annotation.isdecimal() else 0


def _is_failed(job: Json, pod: Json) -> bool:
    if pod_facts.phase(pod) == "Succeeded":
        return False
    if not is_deleting(pod):
        return pod_facts.phase(pod) == "Failed"
    # A pod that was created before `status.startTime` was deleted by a suspension: resuming sets a new startTime.
    start_time = parse_time(status_of(job).get("startTime"))
    created = parse_time(pod["metadata"].get("creationTimestamp")) or 0.0
    return not job["spec"].get("suspend") and start_time is not None and created >= start_time


def _set_counts(status: Json, pods: list[Json], failed: int, active: int) -> None:
    counts = {"active": active, "failed": failed}
    for field, count in counts.items():
        if count:
            status[field] = count
        else:
            status.pop(field, None)
    status["ready"] = sum(pod_facts.ready(pod) for pod in pods)
    status["terminating"] = sum(is_deleting(pod) and not pod_facts.is_finished(pod) for pod in pods)


# --- the finished Job


def _finished(job: Json) -> bool:
    conditions = status_of(job).get("conditions")
    return is_condition_true(conditions, "Complete") or is_condition_true(conditions, "Failed")


def _failure(job: Json, pods: list[Json], failed: int, now: float) -> tuple[str, str] | None:
    """(reason, message) of the condition Failed when the Job has failed, else None."""
    spec = job["spec"]
    if (message := _unsupported(spec)) is not None:
        return "NotSupported", message
    backoff_limit = spec.get("backoffLimit")
    backoff_limit = 6 if backoff_limit is None else int(backoff_limit)
    if failed > backoff_limit or _past_backoff_limit_on_failure(spec, pods, backoff_limit):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = _deadline(job, status_of(job))
    if deadline is not None and now >= deadline and not spec.get("suspend"):
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _unsupported(spec: Json) -> str | None:
    for field in ("completions", "parallelism"):
        if spec.get(field) not in (None, 1):
            return f"spec.{field}: {spec[field]}: the embedded cluster runs one pod at a time per Job: write 1"
    if spec.get("completionMode") not in (None, "NonIndexed"):
        return "spec.completionMode: the embedded cluster has no indexed Jobs: leave the field out"
    return None


def _past_backoff_limit_on_failure(spec: Json, pods: list[Json], backoff_limit: int) -> bool:
    """True when the containers were restarted in place too often (restartPolicy OnFailure)."""
    if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(pod_facts.restart_count(pod) for pod in pods if not pod_facts.is_finished(pod))
    return restarts > 0 if backoff_limit == 0 else restarts >= backoff_limit


def _deadline(job: Json, status: Json) -> float | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    start_time = parse_time(status.get("startTime"))
    return None if seconds is None or start_time is None else start_time + float(seconds)


def _complete(job: Json, pods: list[Json], now: float) -> Decision:
    status = dict(status_of(job))
    finished_at = [pod_facts.finished_at(pod) for pod in pods if pod_facts.phase(pod) == "Succeeded"]
    status.setdefault("startTime", format_time(min(finished_at)))
    _set_counts(status, pods, _failures(job, pods), active=0)
    status |= {"succeeded": 1, "completionTime": format_time(now)}
    reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
    status["conditions"] = set_condition(status.get("conditions") or [], "Complete", True, reason, message, now)
    event = Event("Normal", "Completed", "Job completed")
    return Decision((*_status_update(job, status), *_delete_active(pods)), _expiry(job, status), (event,))


def _fail(job: Json, pods: list[Json], failed: int, failure: tuple[str, str], now: float) -> Decision:
    """Set the condition Failed. The active pods are deleted and count as failed; `failure` is (reason, message)."""
    status = dict(status_of(job))
    active = sum(pod_facts.active(pod) for pod in pods)
    _set_counts(status, pods, failed + active, active=0)
    status["ready"] = 0
    status["conditions"] = set_condition(status.get("conditions") or [], "Failed", True, *failure, now)
    event = Event("Warning", *failure)
    return Decision((*_status_update(job, status), *_delete_active(pods)), _expiry(job, status), (event,))


def _sync_finished(job: Json, pods: list[Json], now: float) -> Decision:
    """Delete the active pods of a finished Job, and the Job itself when `ttlSecondsAfterFinished` is over."""
    expiry = _expiry(job, status_of(job))
    if expiry is not None and expiry <= now:
        return Decision((delete_of(JOB, job),))
    return Decision(_delete_active(pods), expiry)


def _expiry(job: Json, status: Json) -> float | None:
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return None
    finish_times = [
        parse_time(condition.get("lastTransitionTime"))
        for condition in status.get("conditions") or []
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
    ]
    return max((time for time in finish_times if time is not None), default=0.0) + float(ttl)


def _suspend(job: Json, pods: list[Json], failed: int, now: float) -> Decision:
    status = dict(status_of(job))
    status.pop("startTime", None)
    _set_counts(status, pods, failed, active=0)
    status["ready"] = 0
    conditions = status.get("conditions") or []
    status["conditions"] = set_condition(conditions, "Suspended", True, "JobSuspended", "Job suspended", now)
    return Decision((*_status_update(job, status), *_delete_active(pods)))


def _delete_active(pods: list[Json]) -> tuple[Write, ...]:
    return tuple(delete_of(POD, pod) for pod in pods if pod_facts.active(pod))


def _status_update(job: Json, status: Json) -> tuple[Write, ...]:
    if status == status_of(job):
        return ()
    return (UpdateStatus(JOB, {**job, "status": status}),)
