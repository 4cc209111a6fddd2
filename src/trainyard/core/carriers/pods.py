"""A Pod for each slot: one Pod object is one attempt.

Rules:
- Its uid is what is counted, so a Pod that ended is deleted only after a status that counts it.
- A Pod that is going still holds its name; the next one is made when it has gone.
"""

from __future__ import annotations

from trainyard.core.carriers.terminations import (
    disruption_of,
    last_crash,
    restarts,
    run_state,
    succeeded,
    termination_of,
)
from trainyard.core.job import Carrier, Job, OwnedObjects, Replica, Termination
from trainyard.core.model import Child, Delete, Ref, Slot
from trainyard.objects import Json
from trainyard.objects.resources import POD


def observe_pod(job: Job, slot: Slot, family: OwnedObjects) -> Replica:
    """The slot behind one Pod."""
    pod = family.by_ref.get(Ref("Pod", job.kind.child_name(job, slot)))
    if pod is None:
        return Replica(slot, None, "Unknown")
    ended, again = pod.phase in ("Succeeded", "Failed"), restarts((pod,))
    found = Replica(
        slot, pod, "Unknown", None, (), again, pods_ended=ended, last_crash=last_crash(pod) if again else ""
    )
    stale = pod.attempt < job.status.role(slot.role).attempt
    if pod.deleting:  # a program that answers to SIGTERM with 0 has not done its work
        return found._replace(message="is being replaced")
    if not (stale and job.restarts_gang()) and succeeded(job, slot, pod, slot in job.kind.supervised_slots_of(job)):
        return found._replace(state="Succeeded")
    end = _termination(job, slot, pod)
    failed = () if end is None or end.disrupted else (end.uid,)
    if stale:  # it decides nothing any more, and still counts
        return found._replace(failed_attempts=failed, message="is being replaced")
    if end is None:
        state, why = run_state(job, slot, pod)
        return found._replace(state=state, message=why)
    return found._replace(
        state="Failed" if end.fails_job else "Starting", termination=end, failed_attempts=failed, message=end.reason
    )


def _termination(job: Job, slot: Slot, pod: Child) -> Termination | None:
    if pod.disrupted:
        return disruption_of(pod, pod.uid) if pod.phase == "Failed" else None
    return termination_of(job, slot, pod, pod.uid)


def render_pod(job: Job, slot: Slot, attempt: int) -> Json:
    """The Pod of one slot, but for name, owner and common labels."""
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: nothing to make {slot.role} {slot.index} from")
    template = job.kind.mutate_pod_template(role.template, job, slot)
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    kept = {key: meta[key] for key in ("labels", "annotations", "finalizers") if key in meta}
    metadata = {**kept, **job.kind.child_metadata(job, slot)}
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": template["spec"]}


def stop_pod(replica: Replica, reason: str) -> Delete | None:
    pod = replica.child
    return None if pod is None or pod.deleting else Delete(POD, pod.name, pod.uid, reason)


POD_CARRIER = Carrier(
    gvk=POD,
    observe=observe_pod,
    render=render_pod,
    stop=stop_pod,
    resume=lambda job, replica: None,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: replica.failed_attempts,
)
