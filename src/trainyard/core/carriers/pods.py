"""A Pod for each slot: one Pod object is one attempt.

Rules:
- A failed attempt is counted by the Pod's uid, so an ended Pod is deleted only after the status that counts it.
- A Pod in Terminating still has its name; the next Pod is created when it is gone.
"""

from __future__ import annotations

from trainyard.core.carriers.terminations import (
    disruption_of,
    final_phase,
    last_restart_reason,
    restart_count,
    run_state,
    succeeded,
    termination_of,
)
from trainyard.core.job_state import OwnedObjects, Replica, Termination
from trainyard.core.kind import Job, WorkloadAdapter
from trainyard.core.model import Child, Slot
from trainyard.objects import Json, Ref
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace
from trainyard.objects.writes import Delete


def observe_pod(job: Job, slot: Slot, owned: OwnedObjects) -> Replica:
    """The observed state of the slot that one Pod runs."""
    pod = owned.by_ref.get(Ref("Pod", job.kind.pods.name(job, slot)))
    if pod is None:
        return Replica(slot, None, "Unknown")
    ended, restarts = final_phase(pod) in ("Succeeded", "Failed"), restart_count(job, slot, (pod,))
    replica = Replica(
        slot,
        pod,
        "Unknown",
        restart_count=restarts,
        pods_ended=ended,
        last_restart_reason=last_restart_reason(job, slot, pod) if restarts else "",
    )
    stale = pod.attempt < job.status.role(slot.role).attempt
    if pod.deleting:  # a program that exits with 0 on SIGTERM has not finished its work
        return replace(replica, message="is being replaced")
    if not (stale and job.restarts_gang()) and succeeded(job, slot, pod, slot in job.supervised_slots()):
        return replace(replica, state="Succeeded")
    termination = _termination(job, slot, pod)
    counted = termination is not None and not (termination.disrupted or termination.ignored)
    failed = (termination.uid,) if termination is not None and counted else ()
    if stale:  # an older attempt: its state has no effect, but its failures are counted
        return replace(replica, failed_attempts=failed, message="is being replaced")
    if termination is None:
        state, message = run_state(job, slot, pod)
        return replace(replica, state=state, message=message)
    return replace(
        replica,
        state="Failed" if termination.fails_job or termination.ignored else "Starting",
        termination=termination,
        failed_attempts=failed,
        message=termination.reason,
    )


def _termination(job: Job, slot: Slot, pod: Child) -> Termination | None:
    if pod.disrupted:
        return disruption_of(pod, pod.uid) if pod.phase == "Failed" else None
    return termination_of(job, slot, pod, pod.uid)


def render_pod(job: Job, slot: Slot, attempt: int) -> Json:
    """The Pod of one slot, without its name, owner reference and common labels."""
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: there is no pod template for {slot.role} {slot.index}")
    template = job.kind.pods.mutate_pod_template(role.template, job, slot)
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    kept = {key: meta[key] for key in ("labels", "annotations", "finalizers") if key in meta}
    metadata = {**kept, **job.kind.pods.metadata(job, slot)}
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": template["spec"]}


def stop_pod(replica: Replica, reason: str) -> Delete | None:
    """The delete of a replica's pod, None when it is gone or in deletion."""
    pod = replica.child
    if pod is None or pod.deleting:
        return None
    return Delete(POD, pod.namespace, pod.name, pod.uid, reason=reason)


POD_CARRIER = WorkloadAdapter(
    gvk=POD,
    observe=observe_pod,
    render=render_pod,
    stop=stop_pod,
    resume=lambda job, replica: None,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: replica.failed_attempts,
)
