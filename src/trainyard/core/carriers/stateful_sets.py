"""A StatefulSet for a whole role: its pods always restart, so it never ends and never fails a job."""

from __future__ import annotations

from trainyard.core.carriers.terminations import last_restart_reason, restart_count, run_state
from trainyard.core.job_state import NO_POD, OwnedObjects, Replica
from trainyard.core.kind import Job, WorkloadAdapter
from trainyard.core.model import Slot
from trainyard.objects import Json, Ref
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import STATEFUL_SET
from trainyard.objects.structs import replace
from trainyard.objects.writes import Patch


def observe_stateful_set(job: Job, slot: Slot, owned: OwnedObjects) -> Replica:
    """The observed state of the slot that one StatefulSet runs: Running when one of its pods runs."""
    child = owned.by_ref.get(Ref(STATEFUL_SET.kind, job.kind.pods.name(job, slot)))
    if child is None:
        return Replica(slot, None, "Unknown")
    pods = tuple(sorted(owned.pods_by_owner.get(child.uid, ()), key=lambda pod: pod.name))
    replica = Replica(
        slot, child, "Unknown", restart_count=restart_count(job, slot, pods), pods_ended=child.replicas == 0
    )
    if child.deleting or child.attempt < job.status.role(slot.role).attempt:
        return replace(replica, message="is being replaced")
    states = [run_state(job, slot, pod) for pod in pods]
    running = sum(state == "Running" for state, _ in states)
    message = next((text for state, text in states if state != "Running"), "" if states else NO_POD)
    crash = next((text for pod in pods if (text := last_restart_reason(job, slot, pod))), "")
    return replace(
        replica,
        state="Running" if running else "Starting",
        message=message,
        last_restart_reason=crash,
        running_pods=running,
    )


def render_stateful_set(job: Job, slot: Slot, attempt: int) -> Json:
    """The StatefulSet of one role, without its name, owner reference and common labels. Its pods start in parallel."""
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: there is no pod template for {slot.role}")
    template = job.kind.pods.mutate_pod_template(role.template, job, slot)
    name = job.kind.pods.name(job, slot)
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": job.kind.pods.metadata(job, slot),
        "spec": {
            "replicas": role.replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**job.kind.pods.labels(job, slot), OWNER: job.uid}},
            "template": {**template, "spec": {**template.get("spec", {}), "restartPolicy": "Always"}},
        },
    }


def stop_stateful_set(replica: Replica, reason: str) -> Patch | None:
    """The patch that scales the StatefulSet to 0, None when it is gone or in deletion."""
    return None if replica.child is None or replica.child.deleting else _scale_patch(replica, 0)


def resume_stateful_set(job: Job, replica: Replica) -> Patch | None:
    """The patch to the replicas of the role, even if another client has scaled the StatefulSet."""
    role, child = job.role(replica.slot.role), replica.child
    # A StatefulSet of an older attempt is deleted, not scaled; the new attempt may have started in this reconcile.
    current = child is not None and replica.state != "Unknown" and child.attempt >= job.status.role(child.role).attempt
    return _scale_patch(replica, role.replicas) if role and role.template is not None and current else None


def _scale_patch(replica: Replica, replicas: int) -> Patch | None:
    child = replica.child
    if child is None or child.replicas == replicas:
        return None
    body = {"metadata": {"uid": child.uid}, "spec": {"replicas": replicas}}
    return Patch(STATEFUL_SET, child.namespace, child.name, body)


STATEFUL_SET_CARRIER = WorkloadAdapter(
    gvk=STATEFUL_SET,
    observe=observe_stateful_set,
    render=render_stateful_set,
    stop=stop_stateful_set,
    resume=resume_stateful_set,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: (),
    one_object_per_role=True,
)
