"""`--node-lost-timeout`: force deletion of pods whose node does not answer (docs/rules.md S27)."""

from __future__ import annotations

from trainyard.core.job_state import OwnedObjects
from trainyard.core.kind import Job
from trainyard.objects.resources import POD
from trainyard.objects.writes import Delete


def force_deletes(job: Job, owned: OwnedObjects, now: float) -> tuple[list[Delete], float | None]:
    """Force deletes for pods that are in Terminating longer than the timeout past their grace period, and when the next
    pod is due. Without a timeout there are none, because the pod may still run on the lost node beside its
    replacement."""
    timeout = job.config.node_lost_timeout
    if timeout is None:
        return [], None
    terminating = {
        pod.uid: pod
        for pods in (*owned.pods_by_owner.values(), owned.pods_without_owner)
        for pod in pods
        if pod.deleting and pod.delete_deadline and not pod.held_by_finalizers
    }
    reason = f"it is still there {timeout:g} s after it should have ended: its node is lost (--node-lost-timeout)"
    lost = [pod for pod in terminating.values() if pod.delete_deadline + timeout <= now]
    due = [pod.delete_deadline + timeout for pod in terminating.values() if pod.delete_deadline + timeout > now]
    deletes = [Delete(POD, pod.namespace, pod.name, pod.uid, "Background", 0, reason) for pod in lost]
    return deletes, min(due, default=None)
