"""How a pod ended, and what it does while it has not. Read by every carrier, because every carrier ends in pods."""

from __future__ import annotations

from trainyard.core.children import Container, containers
from trainyard.core.job import NO_POD, Job, Termination
from trainyard.core.model import Child, Slot


def termination_of(job: Job, slot: Slot, pod: Child, uid: str) -> Termination | None:
    """How the pod of a judged slot ended without success, None while it has not. `uid` is what is counted."""
    ours = main_container(job, slot, pod)
    if ours and ours.state == "terminated" and ours.code and (pod.phase == "Failed" or not pod.restarts_containers):
        culprit: Container | None = ours
    elif pod.phase == "Failed":
        bad = [one for one in containers(pod) if one.state == "terminated" and one.code]
        culprit = bad[0] if bad else None
    else:
        return None
    at = pod.ended or pod.started or pod.created
    if culprit is None:
        permanent = job.kind.exit_fails_job(job, -1, pod.reason)
        return Termination(uid, at, pod.started, -1, pod.reason or "Failed", "", False, permanent, message=pod.message)
    # The container of the kind alone decides (S13): where another one has brought the pod down, no code is known.
    code, why = (culprit.code, culprit.reason) if culprit is ours else (-1, "")
    permanent = job.kind.exit_fails_job(job, code, why)
    reason = culprit.reason or "Error"
    return Termination(uid, at, pod.started, culprit.code, reason, culprit.name, False, permanent, message=pod.message)


def disruption_of(pod: Child, uid: str) -> Termination:
    """The machine's affairs (S27): replaced, never counted."""
    return Termination(uid, pod.ended, pod.started or pod.created, -1, pod.reason or "Deleted", "", True, False)


def main_container(job: Job, slot: Slot, pod: Child) -> Container | None:
    """The container whose exit code decides for the replica. A pod of an older template may lack the one that the spec
    names now: then it is the kind's default container, or the pod's only one.
    """
    role = job.role(slot.role)
    present = {one.name: one for one in containers(pod) if not one.init}
    named = present.get(role.container if role else "") or present.get(job.kind.container)
    return named or (next(iter(present.values())) if len(present) == 1 else None)


def succeeded(job: Job, slot: Slot, pod: Child, judged: bool) -> bool:
    if pod.phase == "Succeeded":
        return True
    ours = main_container(job, slot, pod)
    done = ours is not None and ours.state == "terminated" and ours.code == 0
    # The speaking container alone decides; elsewhere a failed pod is made again by its Job.
    return done and (not pod.always_restarts if judged else pod.phase != "Failed")


def run_state(job: Job, slot: Slot, pod: Child | None) -> tuple[str, str]:
    """Starting or Running, and why it does not run."""
    if pod is None:
        return "Starting", NO_POD
    ours = main_container(job, slot, pod)
    if ours and ours.state == "running" and not pod.deleting:
        return "Running", ""
    waits = [one.reason for one in containers(pod) if one.state == "waiting" and one.reason]
    return "Starting", pod.reason or (waits[0] if waits else pod.phase)


def newest_pod(pods: tuple[Child, ...]) -> Child | None:
    """The pod of the latest attempt."""
    return max(pods, key=lambda pod: (pod.created, pod.started, pod.uid), default=None)


def restarts(pods: tuple[Child, ...]) -> int:
    """In place, by the nodes; a pod that goes takes its own along (S28)."""
    return sum(container.restarts for one in pods if not one.deleting for container in containers(one))


def last_crash(pod: Child | None) -> str:
    """What the last restart in place was for."""
    again = (one for one in (containers(pod) if pod else ()) if one.restarts and one.code)
    return next((f"container {one.name} exited with code {one.code}" for one in again), "")
