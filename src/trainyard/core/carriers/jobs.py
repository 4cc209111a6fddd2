"""A batch/v1 Job for each slot.

JOB_CARRIER (docs/rules.md S13, S14, S31):
- The Job of a supervised slot (Lifecycle.supervised_slots) has `restartPolicy: Never` and `backoffLimit: 0`: one Job is
  one attempt, and the operator evaluates its ended pod. A failed attempt is counted by the uid of the Job, whether the
  pod or the Job's status shows the failure.
- Any other slot keeps the user's restartPolicy and has UNLIMITED_BACKOFF_LIMIT: the kubelet restarts its container, or
  the Job's controller creates another pod.

RETRYING_JOB_CARRIER leaves all retries to the Job's controller: the slot ends when the Job ends.
"""

from __future__ import annotations

from trainyard.core.carriers.terminations import (
    disruption_of,
    final_phase,
    last_restart_reason,
    main_container,
    newest_pod,
    restart_count,
    run_state,
    succeeded,
    termination_of,
)
from trainyard.core.job_state import OwnedObjects, Replica, Termination
from trainyard.core.kind import Job, WorkloadAdapter
from trainyard.core.model import Child, Slot
from trainyard.objects import Json, Ref
from trainyard.objects.resources import JOB
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete

UNLIMITED_BACKOFF_LIMIT = 2147483647
"""The `backoffLimit` of a Job that is retried without limit: the largest int32."""

NO_POD_GRACE = 5.0
"""Seconds after which a failed Job without a pod counts as failed: the watch event of its pod may arrive later."""


def observe_job(job: Job, slot: Slot, owned: OwnedObjects) -> Replica:
    """The observed state of the slot that one batch Job runs, from the Job and its newest pod."""
    child, pods, pod = _objects_of(job, slot, owned)
    if child is None:
        return Replica(slot, None, "Unknown")
    replica = _observed(job, slot, child, pods, pod)
    return replace(
        replica,
        pods_ended=_pods_ended(job, slot, child, pod),
        last_restart_reason=last_restart_reason(job, slot, pod) if replica.restart_count else "",
    )


def _objects_of(job: Job, slot: Slot, owned: OwnedObjects) -> tuple[Child | None, tuple[Child, ...], Child | None]:
    child = owned.by_ref.get(Ref("Job", job.kind.pods.name(job, slot)))
    pods = owned.pods_by_owner.get(child.uid, ()) if child else ()
    return child, pods, newest_pod(pods)


def _pods_ended(job: Job, slot: Slot, child: Child, pod: Child | None) -> bool:
    """True when no pod of the Job runs or will run. A supervised slot's Job has one pod (backoffLimit 0); any other Job
    replaces a failed pod."""
    final_phases = ("Succeeded", "Failed") if slot in job.supervised_slots() else ("Succeeded",)
    return bool(child.phase) or (pod is not None and final_phase(pod) in final_phases)


def _observed(job: Job, slot: Slot, child: Child, pods: tuple[Child, ...], pod: Child | None) -> Replica:
    restarts, supervised = restart_count(job, slot, pods), slot in job.supervised_slots()
    failed = _failed_pods(pods)
    stale = child.attempt < job.status.role(slot.role).attempt
    replaced = Replica(slot, child, "Unknown", message="is being replaced")
    if stale:  # an older attempt: its state has no effect, but its failures are counted
        replaced = replace(replaced, failed_attempts=_stale_failures(job, slot, child, pod) if supervised else failed)
    if stale and job.restarts_gang():
        return replaced
    if child.phase == "Complete" or (pod and not child.deleting and succeeded(job, slot, pod, supervised)):
        failed = () if supervised else failed
        return Replica(slot, child, "Succeeded", failed_attempts=failed, restart_count=restarts)
    if child.deleting or stale:
        return replaced
    if supervised:
        return _observe_supervised(job, Replica(slot, child, "Unknown", restart_count=restarts), child, pod)
    replica = Replica(slot, child, "Unknown", failed_attempts=failed, restart_count=restarts)
    if child.phase == "Failed":
        return replace(replica, state="Failed", message=child.message or child.reason)
    state, message = run_state(job, slot, pod)
    return replace(replica, state=state, message=message)


def _failed_pods(pods: tuple[Child, ...]) -> tuple[str, ...]:
    """The uids of the pods that failed without a disruption."""
    return tuple(sorted(pod.uid for pod in pods if pod.phase == "Failed" and not _disrupted(pod)))


def _stale_failures(job: Job, slot: Slot, child: Child, pod: Child | None) -> tuple[str, ...]:
    termination = _termination(job, slot, child, pod) if pod else None
    return (termination.uid,) if termination and not termination.disrupted else ()


def _observe_supervised(job: Job, replica: Replica, child: Child, pod: Child | None) -> Replica:
    termination = _termination(job, replica.slot, child, pod) if pod else _termination_without_pod(child)
    state, message = run_state(job, replica.slot, pod)
    if termination is None:
        return replace(replica, state=state, message=message)
    failed = () if termination.disrupted else (termination.uid,)
    return replace(
        replica,
        state="Failed" if termination.fails_job else "Starting",
        termination=termination,
        failed_attempts=failed,
        message=termination.reason,
    )


def _termination_without_pod(child: Child) -> Termination | None:
    if child.phase != "Failed":
        return None
    reason = child.reason or "Failed"
    ignored_until = child.finished_at + NO_POD_GRACE
    return Termination(child.uid, child.finished_at, child.created, -1, reason, ignored_until=ignored_until)


def _termination(job: Job, slot: Slot, child: Child, pod: Child) -> Termination | None:
    return disruption_of(pod, child.uid) if _disrupted(pod) else termination_of(job, slot, pod, child.uid)


def _disrupted(pod: Child) -> bool:
    """The operator never deletes a single pod of a batch Job, so a pod in Terminating was disrupted (S27)."""
    return pod.disrupted or pod.deleting


def observe_retrying_job(job: Job, slot: Slot, owned: OwnedObjects) -> Replica:
    """The observed state of the slot that a retrying batch Job runs: the slot ends only when the Job does."""
    child, pods, pod = _objects_of(job, slot, owned)
    if child is None:
        return Replica(slot, None, "Unknown")
    failed = _failed_pods(pods)
    replica = Replica(
        slot,
        child,
        "Unknown",
        failed_attempts=failed,
        restart_count=restart_count(job, slot, pods),
        pods_ended=bool(child.phase),
        failed_pods=child.failed_pods,
    )
    # A succeeded pod completes the Job, whose status may lag.
    done = any(candidate.phase == "Succeeded" for candidate in pods) and not child.deleting
    if child.phase == "Complete" or done:
        return replace(replica, state="Succeeded", pods_ended=True)
    if child.deleting or child.attempt < job.status.role(slot.role).attempt:
        return replace(replica, message="is being replaced")
    if child.phase == "Failed":
        return replace(
            replica,
            state="Failed",
            termination=_job_termination(job, slot, child, pod),
            message=child.message or child.reason,
        )
    state, message = run_state(job, slot, pod)
    return replace(replica, state=state, message=message, last_restart_reason=last_restart_reason(job, slot, pod))


def _job_termination(job: Job, slot: Slot, child: Child, pod: Child | None) -> Termination:
    """The termination of a failed Job: the reason is the Job's; container and exit code are those of the newest pod, or
    of the container's last termination if that pod has not ended."""
    pod_termination = termination_of(job, slot, pod, child.uid) if pod else None
    code, name = (pod_termination.exit_code, pod_termination.container) if pod_termination else (-1, "")
    detail = pod_termination.message if pod_termination else ""
    container = main_container(job, slot, pod) if pod and not pod_termination else None
    if container and container.exit_code:
        code, name = container.exit_code, container.name
    elif container and container.state == "running":
        detail = f"container {container.name} was still running"
    elif pod is None:
        detail = _deleted_pods_message(job, slot, child)
    reason = child.reason or "Failed"
    message = "; ".join(dict.fromkeys(text for text in (child.message, detail) if text))
    return Termination(
        child.uid,
        child.finished_at,
        child.created,
        code,
        reason,
        container=name,
        fails_job=True,
        job_reason=reason,
        message=message,
        pod_is_gone=pod is None,
    )


def _deleted_pods_message(job: Job, slot: Slot, child: Child) -> str:
    """The message for a failed Job without pods: the Job controller deletes pods that still run."""
    role, count = job.role(slot.role), child.failed_pods
    container = (role.container if role else "") or job.kind.roles.container
    failed = f"{count} {'pod' if count == 1 else 'pods'} of it failed, and " if count else ""
    return f"{failed}its pods have been deleted, so that the exit code of container {container} is not known"


def render_job(job: Job, slot: Slot, attempt: int) -> Json:
    """The batch Job of one slot, without its name, owner reference and common labels."""
    template = _pod_template(job, slot)
    supervised = slot in job.supervised_slots()
    policy = template.get("spec", {}).get("restartPolicy")
    restart = "Never" if supervised or policy == "Never" else "OnFailure"
    return _batch_job(job, slot, template, restart, {"backoffLimit": 0 if supervised else UNLIMITED_BACKOFF_LIMIT})


def render_retrying_job(job: Job, slot: Slot, attempt: int) -> Json:
    """The batch Job with the user's limits (PodRecipe.job_spec_fields), which the Job's controller enforces."""
    template = _pod_template(job, slot)
    policy = template.get("spec", {}).get("restartPolicy") or "Never"
    return _batch_job(
        job, slot, template, "Never" if policy == "Never" else "OnFailure", job.kind.pods.job_spec_fields(job, slot)
    )


def _pod_template(job: Job, slot: Slot) -> Json:
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: there is no pod template for {slot.role} {slot.index}")
    return job.kind.pods.mutate_pod_template(role.template, job, slot)


def _batch_job(job: Job, slot: Slot, template: Json, restart: str, limits: Json) -> Json:
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": job.kind.pods.metadata(job, slot),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            **limits,
            "template": {**template, "spec": {**template.get("spec", {}), "restartPolicy": restart}},
        },
    }


def stop_job(replica: Replica, reason: str) -> Delete | None:
    """The delete of the Job with its pods. Batch Jobs are never patched (S5, S12)."""
    child = replica.child
    if child is None or child.deleting:
        return None
    return Delete(JOB, child.namespace, child.name, child.uid, reason=reason)


JOB_CARRIER = WorkloadAdapter(
    gvk=JOB,
    observe=observe_job,
    render=render_job,
    stop=stop_job,
    resume=lambda job, replica: None,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: replica.failed_attempts,
)

RETRYING_JOB_CARRIER = replace(JOB_CARRIER, observe=observe_retrying_job, render=render_retrying_job)
