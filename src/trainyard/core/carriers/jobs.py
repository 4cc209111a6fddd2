"""A batch/v1 Job for each slot.

How JOB_CARRIER uses it (docs/rules.md S13, S14, S31):
- A slot that is judged gets `restartPolicy: Never` and `backoffLimit: 0`: one Job object is one attempt, and we judge
  its ended pod. So a failed attempt is counted by the uid of the Job object, whatever shows the failure.
- Any other slot keeps the user's restartPolicy and a limit without end: its node restarts it, or its Job does.

RETRYING_JOB_CARRIER leaves all retries to the Job's own controller: the slot ends when the Job does.
"""

from __future__ import annotations

from trainyard.core.carriers.terminations import (
    disruption_of,
    last_crash,
    main_container,
    newest_pod,
    restarts,
    run_state,
    succeeded,
    termination_of,
)
from trainyard.core.job import Carrier, Job, OwnedObjects, Replica, Termination
from trainyard.core.model import Child, Delete, Ref, Slot
from trainyard.objects import Json
from trainyard.objects.resources import JOB
from trainyard.objects.values import replace

ENDLESS = 2147483647
NO_POD_GRACE = 5.0
"""Seconds after which a failed Job without any pod is believed: its pod may be a watch event away."""


def observe_job(job: Job, slot: Slot, family: OwnedObjects) -> Replica:
    """The slot behind one batch Job, from the Job and its newest pod."""
    child, pods, pod = _objects_of(job, slot, family)
    if child is None:
        return Replica(slot, None, "Unknown")
    found = _observed(job, slot, child, pods, pod)
    return found._replace(
        pods_ended=_ended(job, slot, child, pod), last_crash=last_crash(pod) if found.restarts else ""
    )


def _objects_of(job: Job, slot: Slot, family: OwnedObjects) -> tuple[Child | None, tuple[Child, ...], Child | None]:
    child = family.by_ref.get(Ref("Job", job.kind.child_name(job, slot)))
    pods = family.pods_by_owner.get(child.uid, ()) if child else ()
    return child, pods, newest_pod(pods)


def _ended(job: Job, slot: Slot, child: Child, pod: Child | None) -> bool:
    """The pod of a judged Job is its only one (backoffLimit 0); elsewhere a failed pod is followed by another."""
    last = ("Succeeded", "Failed") if slot in job.kind.supervised_slots_of(job) else ("Succeeded",)
    return bool(child.phase) or (pod is not None and pod.phase in last)


def _observed(job: Job, slot: Slot, child: Child, pods: tuple[Child, ...], pod: Child | None) -> Replica:
    again, judged = restarts(pods), slot in job.kind.supervised_slots_of(job)
    failed = tuple(sorted(one.uid for one in pods if one.phase == "Failed" and not _disrupted(one)))
    stale = child.attempt < job.status.role(slot.role).attempt
    replaced = Replica(slot, child, "Unknown", message="is being replaced")
    if stale:  # it decides nothing any more, and still counts
        replaced = replaced._replace(failed_attempts=_stale_failures(job, slot, child, pod) if judged else failed)
    if stale and job.restarts_gang():
        return replaced
    if child.phase == "Complete" or (pod and not child.deleting and succeeded(job, slot, pod, judged)):
        return Replica(slot, child, "Succeeded", None, () if judged else failed, again)
    if child.deleting or stale:
        return replaced
    if judged:
        return _observe_supervised(job, Replica(slot, child, "", None, (), again), child, pod)
    if child.phase == "Failed":
        return Replica(slot, child, "Failed", None, failed, again, child.message or child.reason)
    state, why = run_state(job, slot, pod)
    return Replica(slot, child, state, None, failed, again, why)


def _stale_failures(job: Job, slot: Slot, child: Child, pod: Child | None) -> tuple[str, ...]:
    end = _termination(job, slot, child, pod) if pod else None
    return (end.uid,) if end and not end.disrupted else ()


def _observe_supervised(job: Job, replica: Replica, child: Child, pod: Child | None) -> Replica:
    end = _termination(job, replica.slot, child, pod) if pod else _termination_without_pod(child)
    state, why = run_state(job, replica.slot, pod)
    if end is None:
        return replica._replace(state=state, message=why)
    failed = () if end.disrupted else (end.uid,)
    return replica._replace(
        state="Failed" if end.fails_job else "Starting", termination=end, failed_attempts=failed, message=end.reason
    )


def _termination_without_pod(child: Child) -> Termination | None:
    if child.phase != "Failed":
        return None
    reason = child.reason or "Failed"
    return Termination(child.uid, child.ended, child.created, -1, reason, "", False, False, child.ended + NO_POD_GRACE)


def _termination(job: Job, slot: Slot, child: Child, pod: Child) -> Termination | None:
    return disruption_of(pod, child.uid) if _disrupted(pod) else termination_of(job, slot, pod, child.uid)


def _disrupted(pod: Child) -> bool:
    """The operator starts no delete of a single Job pod, so a pod in Terminating was disrupted."""
    return pod.disrupted or pod.deleting


def observe_retrying_job(job: Job, slot: Slot, family: OwnedObjects) -> Replica:
    """The slot behind one batch Job that tries again by itself: only the Job's own end is one."""
    child, pods, pod = _objects_of(job, slot, family)
    if child is None:
        return Replica(slot, None, "Unknown")
    failed = tuple(sorted(one.uid for one in pods if one.phase == "Failed" and not _disrupted(one)))
    found = Replica(
        slot,
        child,
        "Unknown",
        None,
        failed,
        restarts(pods),
        pods_ended=bool(child.phase),
        failed_pods=child.failed_pods,
    )
    done = any(one.phase == "Succeeded" for one in pods) and not child.deleting  # the Job will say so, too
    if child.phase == "Complete" or done:
        return found._replace(state="Succeeded", pods_ended=True)
    if child.deleting or child.attempt < job.status.role(slot.role).attempt:
        return found._replace(message="is being replaced")
    if child.phase == "Failed":
        return found._replace(
            state="Failed", termination=_job_termination(job, slot, child, pod), message=child.message or child.reason
        )
    state, why = run_state(job, slot, pod)
    return found._replace(state=state, message=why, last_crash=last_crash(pod))


def _job_termination(job: Job, slot: Slot, child: Child, pod: Child | None) -> Termination:
    """The end of a failed Job: its reason is the Job's, container and exit code are those of the last pod. Of a pod
    that has not ended, the exit code is that of the container's last termination."""
    seen = termination_of(job, slot, pod, child.uid) if pod else None
    code, container = (seen.code, seen.container) if seen else (-1, "")
    more = seen.message if seen else ""
    current = main_container(job, slot, pod) if pod and not seen else None
    if current and current.code:
        code, container = current.code, current.name
    elif current and current.state == "running":
        more = f"container {current.name} was still running"
    elif pod is None:
        more = _without_pods(job, slot, child)
    reason = child.reason or "Failed"
    said = "; ".join(dict.fromkeys(text for text in (child.message, more) if text))
    end = Termination(child.uid, child.ended, child.created, code, reason, container, False, True, 0.0, reason, said)
    return replace(end, pod_is_gone=pod is None)


def _without_pods(job: Job, slot: Slot, child: Child) -> str:
    """What is known when Kubernetes has removed the pods of a Job, as it does with those that still run."""
    role, count = job.role(slot.role), child.failed_pods
    container = (role.container if role else "") or job.kind.container
    failed = f"{count} {'pod' if count == 1 else 'pods'} of it failed, and " if count else ""
    return f"{failed}its pods have gone, so that the exit code of container {container} is not known"


def render_job(job: Job, slot: Slot, attempt: int) -> Json:
    """The batch Job of one slot, but for name, owner and common labels."""
    template = _pod_template(job, slot)
    judged = slot in job.kind.supervised_slots_of(job)
    policy = template.get("spec", {}).get("restartPolicy")
    restart = "Never" if judged or policy == "Never" else "OnFailure"
    return _job(job, slot, template, restart, {"backoffLimit": 0 if judged else ENDLESS})


def render_retrying_job(job: Job, slot: Slot, attempt: int) -> Json:
    """The same with the user's own limits, for the Job's controller to keep."""
    template = _pod_template(job, slot)
    policy = template.get("spec", {}).get("restartPolicy") or "Never"
    return _job(job, slot, template, "Never" if policy == "Never" else "OnFailure", job.kind.job_limits(job, slot))


def _pod_template(job: Job, slot: Slot) -> Json:
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: nothing to make {slot.role} {slot.index} from")
    return job.kind.mutate_pod_template(role.template, job, slot)


def _job(job: Job, slot: Slot, template: Json, restart: str, limits: Json) -> Json:
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": job.kind.child_metadata(job, slot),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            **limits,
            "template": {**template, "spec": {**template.get("spec", {}), "restartPolicy": restart}},
        },
    }


def stop_job(replica: Replica, reason: str) -> Delete | None:
    """Batch Jobs are never patched: what has not ended is deleted with its pods (S5, S12)."""
    child = replica.child
    if child is None or child.deleting:
        return None
    return Delete(JOB, child.name, child.uid, reason)


JOB_CARRIER = Carrier(
    gvk=JOB,
    observe=observe_job,
    render=render_job,
    stop=stop_job,
    resume=lambda job, replica: None,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: replica.failed_attempts,
)

RETRYING_JOB_CARRIER = replace(JOB_CARRIER, observe=observe_retrying_job, render=render_retrying_job)
