"""What fills a slot. One carrier so far: a batch/v1 Job, one per slot.

How a batch Job is used (settled.md S13, S14, S31):
- A slot that decides the job gets `restartPolicy: Never` and `backoffLimit: 0`: one Job object is one attempt, and we
  judge its ended pod. So a failed attempt is counted by the uid of the Job object, whatever shows the failure.
- Any other slot keeps the user's restartPolicy and a limit without end: its node restarts it, or its Job does.
"""

from __future__ import annotations

from trainyard.core.children import Container, containers
from trainyard.core.model import JOB, Carrier, Child, Delete, End, Family, Job, Ref, Replica, Slot
from trainyard.objects import Json

ENDLESS = 2147483647
NO_POD_GRACE = 5.0
"""Seconds after which a failed Job without any pod is believed: its pod may be a watch event away."""


def observe_job(job: Job, slot: Slot, family: Family) -> Replica:
    """The slot behind one batch Job, from the Job and its newest pod."""
    child = family.by_ref.get(Ref("Job", job.kind.child_name(job, slot)))
    if child is None:
        return Replica(slot, None, "Unknown")
    pods = family.pods.get(child.uid, ())
    pod = max(pods, key=lambda one: (one.created, one.started, one.uid), default=None)
    found = _observed(job, slot, child, pods, pod)
    return found._replace(ended=_ended(job, slot, child, pod), crash=_crash(pod) if found.restarts else "")


def _crash(pod: Child | None) -> str:
    again = (one for one in (containers(pod) if pod else ()) if one.restarts and one.code)
    return next((f"container {one.name} exited with code {one.code}" for one in again), "")


def _ended(job: Job, slot: Slot, child: Child, pod: Child | None) -> bool:
    """The pod of a deciding Job is its only one (backoffLimit 0); elsewhere a failed pod is followed by another."""
    last = ("Succeeded", "Failed") if slot in job.kind.decides(job) else ("Succeeded",)
    return bool(child.phase) or (pod is not None and pod.phase in last)


def _observed(job: Job, slot: Slot, child: Child, pods: tuple[Child, ...], pod: Child | None) -> Replica:
    restarts = sum(container.restarts for one in pods if not one.deleting for container in containers(one))
    failed = tuple(sorted(one.uid for one in pods if one.phase == "Failed" and not _disrupted(one)))
    decides = slot in job.kind.decides(job)
    if child.phase == "Complete" or (pod and _succeeded(job, slot, pod)):
        return Replica(slot, child, "Succeeded", None, () if decides else failed, restarts)
    if child.deleting or child.attempt < job.memory.role(slot.role).attempt:
        return Replica(slot, child, "Unknown", why="is being replaced")
    if decides:
        return _deciding(job, Replica(slot, child, "", None, (), restarts), child, pod)
    if child.phase == "Failed":
        return Replica(slot, child, "Failed", None, failed, restarts, child.message or child.reason)
    state, why = _life(job, pod)
    return Replica(slot, child, state, None, failed, restarts, why)


def _deciding(job: Job, replica: Replica, child: Child, pod: Child | None) -> Replica:
    end = _end(job, child, pod) if pod else _podless_end(child)
    state, why = _life(job, pod)
    if end is None:
        return replica._replace(state=state, why=why)
    failed = () if end.disrupted else (end.uid,)
    return replica._replace(state="Failed" if end.permanent else "Starting", end=end, failed=failed, why=end.reason)


def _podless_end(child: Child) -> End | None:
    if child.phase != "Failed":
        return None
    reason = child.reason or "Failed"
    return End(child.uid, child.ended, child.created, -1, reason, "", False, False, child.ended + NO_POD_GRACE)


def _end(job: Job, child: Child, pod: Child) -> End | None:
    """How the pod of a deciding slot ended, None while it has not."""
    if _disrupted(pod):
        return End(child.uid, pod.ended, pod.started or pod.created, -1, pod.reason or "Deleted", "", True, False)
    ours = _ours(job, pod)
    culprit: Container | None
    if ours and ours.state == "terminated" and ours.code:
        culprit = ours
    elif pod.phase == "Failed":
        bad = [one for one in containers(pod) if one.state == "terminated" and one.code]
        culprit = bad[0] if bad else None
    else:
        return None
    at = pod.ended or child.ended or pod.started or pod.created
    if culprit is None:
        return End(child.uid, at, pod.started, -1, pod.reason or "Failed", "", False, False)
    # The container of the kind alone decides (S13); a pod that another one has brought down is tried again.
    permanent = culprit is ours and job.kind.permanent(culprit.code, culprit.reason)
    return End(child.uid, at, pod.started, culprit.code, culprit.reason or "Error", culprit.name, False, permanent)


def _ours(job: Job, pod: Child) -> Container | None:
    """The container that speaks for the replica."""
    return next((one for one in containers(pod) if one.name == job.kind.container and not one.init), None)


def _disrupted(pod: Child) -> bool:
    """The machine's affairs (S27). We never delete a pod by itself, so one that is going was not our doing."""
    return pod.disrupted or pod.deleting


def _succeeded(job: Job, slot: Slot, pod: Child) -> bool:
    if pod.phase == "Succeeded":
        return True
    ours = _ours(job, pod)
    done = ours is not None and ours.state == "terminated" and ours.code == 0
    # The deciding container alone decides; elsewhere a failed pod is made again by its Job.
    return done and (slot in job.kind.decides(job) or pod.phase != "Failed")


def _life(job: Job, pod: Child | None) -> tuple[str, str]:
    if pod is None:
        return "Starting", "has no pod yet"
    ours = _ours(job, pod)
    if ours and ours.state == "running" and not pod.deleting:
        return "Running", ""
    waits = [one.reason for one in containers(pod) if one.state == "waiting" and one.reason]
    return "Starting", pod.reason or (waits[0] if waits else pod.phase)


def render_job(job: Job, slot: Slot, attempt: int) -> Json:
    """The batch Job of one slot, but for name, owner and common labels."""
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: nothing to make {slot.role} {slot.index} from")
    decides = slot in job.kind.decides(job)
    template = job.kind.dress(role.template, job, slot)
    policy = template.get("spec", {}).get("restartPolicy")
    restart = "Never" if decides or policy == "Never" else "OnFailure"
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {},
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0 if decides else ENDLESS,
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
    resume=lambda replica: None,
    ended=lambda replica: replica.ended,
    failures=lambda replica: replica.failed,
)
