"""batch/v1 Job, as the real controller runs it, for completions 1 and parallelism 1 (all that a training job needs).

Flow: one look at one Job and its pods gives the new status, then what to delete, then at most one pod to make.

How a failed pod is counted once, without finalizers: the k-th pod of a Job has an annotation with k, the number of
failures before it, and a name derived from (uid, k). A pod that failed therefore proves `failed >= k + 1`, however
often it is looked at, and `status.failed` is the greater of what is stored and what the pods prove. The count is stored
(with the resourceVersion we decided on) before the next pod is made; dying between the two makes the same name again.
A failed pod that somebody deletes before it was counted is not counted, and its replacement takes its place and name.

Guarantees:
- success decides: a pod that ended Succeeded completes the Job;
- a pod that is being deleted counts as failed and is replaced (podReplacementPolicy TerminatingOrFailed, the default),
  but not when it went because the Job was suspended;
- a finished Job never changes again, and keeps no active pod.
Not here: podFailurePolicy, successPolicy, indexed Jobs.
"""

from __future__ import annotations

from trainyard.core import Event
from trainyard.objects import (
    Json,
    format_time,
    is_true,
    name_of,
    owner_reference,
    parse_time,
    uid_of,
    with_condition,
)
from trainyard.objects.labels import PREFIX
from trainyard.objects.resources import JOB, POD
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import status_of
from trainyard.workloads.writes import Create, Decision, SetStatus, Write, delete_of

BEFORE = PREFIX + "failures-before"  # annotation of a pod: how many pods of its Job had failed when it was made
CONTROLLER = "kubernetes.io/job-controller"
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 360.0


def decide(job: Json, pods: list[Json], now: float) -> Decision:
    """`pods` are those whose controller owner is this Job."""
    if pod_facts.deleting(job) or job["spec"].get("managedBy", CONTROLLER) != CONTROLLER:
        return Decision()
    if _finished(job):
        return _after_the_end(job, pods, now)
    if any(pod_facts.phase(pod) == "Succeeded" for pod in pods):
        return _complete(job, pods, now)
    failed = _failures(job, pods)
    if why := _failure(job, pods, failed, now):
        return _fail(job, pods, failed, why, now)
    if job["spec"].get("suspend"):
        return _suspend(job, pods, failed, now)
    return _go_on(job, pods, failed, now)


# --- the running Job


def _go_on(job: Json, pods: list[Json], failed: int, now: float) -> Decision:
    status = dict(status_of(job))
    conditions = status.get("conditions") or []
    if is_true(conditions, "Suspended"):
        status["conditions"] = with_condition(conditions, "Suspended", False, "JobResumed", "Job resumed", now)
    status.setdefault("startTime", format_time(now))
    running = [pod for pod in pods if pod_facts.active(pod)]
    wake: list[float] = []
    made: list[Write] = []
    if not running:
        at = _next_start(job, pods, failed)
        pod = _pod(job, failed)
        if at > now:
            wake.append(at)
        elif not any(name_of(old) == name_of(pod) for old in pods):
            made.append(Create(POD, pod))
    _count(status, pods, failed, active=len(running) + len(made))
    if (deadline := _deadline(job, status)) is not None:
        wake.append(deadline)
    return Decision((*_status(job, status), *made), min(wake, default=None))


def _next_start(job: Json, pods: list[Json], failed: int) -> float:
    """The back-off: 10 s after the last failure, doubling up to six minutes."""
    ends = [pod_facts.finished_at(pod) for pod in pods if _is_failed(job, pod)]
    if not ends or not failed:
        return 0.0
    return max(ends) + min(FIRST_PAUSE * 2.0 ** min(failed - 1, 10), LONGEST_PAUSE)


def _pod(job: Json, failed: int) -> Json:
    template = job["spec"].get("template") or {}
    owner = owner_reference("batch/v1", "Job", name_of(job), uid_of(job))
    name = pod_facts.generated(name_of(job), pod_facts.suffix(uid_of(job), failed))
    pod = pod_facts.from_template(template, job, owner, name)
    pod["metadata"]["labels"] |= labels_for(name_of(job), uid_of(job))
    pod["metadata"]["annotations"][BEFORE] = str(failed)
    return pod


def labels_for(name: str, uid: str) -> dict[str, str]:
    """The four labels by which people and tools find a Job's pods."""
    return {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


# --- counting


def _failures(job: Json, pods: list[Json]) -> int:
    proven = [_before(pod) + 1 for pod in pods if _is_failed(job, pod)]
    return max([int(status_of(job).get("failed") or 0), *proven])


def _before(pod: Json) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(BEFORE, "0"))
    return int(text) if text.isdecimal() else 0


def _is_failed(job: Json, pod: Json) -> bool:
    if pod_facts.phase(pod) == "Succeeded":
        return False
    if not pod_facts.deleting(pod):
        return pod_facts.phase(pod) == "Failed"
    # Stopped by suspending: made before the start that holds now.
    started = parse_time(status_of(job).get("startTime"))
    born = parse_time(pod["metadata"].get("creationTimestamp")) or 0.0
    return not job["spec"].get("suspend") and started is not None and born >= started


def _count(status: Json, pods: list[Json], failed: int, active: int) -> None:
    counts = {"active": active, "failed": failed}
    for field, count in counts.items():
        if count:
            status[field] = count
        else:
            status.pop(field, None)
    status["ready"] = sum(pod_facts.ready(pod) for pod in pods)
    status["terminating"] = sum(pod_facts.deleting(pod) and not pod_facts.ended(pod) for pod in pods)


# --- the end


def _finished(job: Json) -> bool:
    conditions = status_of(job).get("conditions")
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def _failure(job: Json, pods: list[Json], failed: int, now: float) -> tuple[str, str] | None:
    """(reason, message) when the Job has to end as Failed."""
    spec = job["spec"]
    if (text := _unsupported(spec)) is not None:
        return "NotSupported", text
    limit = spec.get("backoffLimit")
    limit = 6 if limit is None else int(limit)
    if failed > limit or _restarted_too_often(spec, pods, limit):
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


def _restarted_too_often(spec: Json, pods: list[Json], limit: int) -> bool:
    if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    count = sum(pod_facts.restarts(pod) for pod in pods if not pod_facts.ended(pod))
    return count > 0 if limit == 0 else count >= limit


def _deadline(job: Json, status: Json) -> float | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    started = parse_time(status.get("startTime"))
    return None if seconds is None or started is None else started + float(seconds)


def _complete(job: Json, pods: list[Json], now: float) -> Decision:
    status = dict(status_of(job))
    ends = [pod_facts.finished_at(pod) for pod in pods if pod_facts.phase(pod) == "Succeeded"]
    status.setdefault("startTime", format_time(min(ends)))
    _count(status, pods, _failures(job, pods), active=0)
    status |= {"succeeded": 1, "completionTime": format_time(now)}
    reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
    status["conditions"] = with_condition(status.get("conditions") or [], "Complete", True, reason, message, now)
    event = Event("Normal", "Completed", "Job completed")
    return Decision((*_status(job, status), *_stop(pods)), _expiry(job, status), (event,))


def _fail(job: Json, pods: list[Json], failed: int, why: tuple[str, str], now: float) -> Decision:
    status = dict(status_of(job))
    stopped = sum(pod_facts.active(pod) for pod in pods)
    _count(status, pods, failed + stopped, active=0)
    status["ready"] = 0
    status["conditions"] = with_condition(status.get("conditions") or [], "Failed", True, *why, now)
    return Decision((*_status(job, status), *_stop(pods)), _expiry(job, status), (Event("Warning", *why),))


def _after_the_end(job: Json, pods: list[Json], now: float) -> Decision:
    """A finished Job keeps no active pod, and goes when its time to live is over."""
    expiry = _expiry(job, status_of(job))
    if expiry is not None and expiry <= now:
        return Decision((delete_of(JOB, job),))
    return Decision(_stop(pods), expiry)


def _expiry(job: Json, status: Json) -> float | None:
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return None
    ends = [
        parse_time(one.get("lastTransitionTime"))
        for one in status.get("conditions") or []
        if one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
    ]
    return max((end for end in ends if end is not None), default=0.0) + float(ttl)


def _suspend(job: Json, pods: list[Json], failed: int, now: float) -> Decision:
    status = dict(status_of(job))
    status.pop("startTime", None)
    _count(status, pods, failed, active=0)
    status["ready"] = 0
    conditions = status.get("conditions") or []
    status["conditions"] = with_condition(conditions, "Suspended", True, "JobSuspended", "Job suspended", now)
    return Decision((*_status(job, status), *_stop(pods)))


def _stop(pods: list[Json]) -> tuple[Write, ...]:
    return tuple(delete_of(POD, pod) for pod in pods if pod_facts.active(pod))


def _status(job: Json, status: Json) -> tuple[Write, ...]:
    if status == status_of(job):
        return ()
    return (SetStatus(JOB, {**job, "status": status}),)
