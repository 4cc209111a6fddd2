"""A StatefulSet for a whole role: its pods are started again for ever, so it never ends and never fails a job."""

from __future__ import annotations

from trainyard.core.carriers.terminations import last_crash, restarts, run_state
from trainyard.core.job import NO_POD, Carrier, Job, OwnedObjects, Replica
from trainyard.core.model import Patch, Ref, Slot
from trainyard.objects import Json
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import STATEFUL_SET


def observe_set(job: Job, slot: Slot, family: OwnedObjects) -> Replica:
    """The slot behind one StatefulSet: it runs when one of its pods does."""
    child = family.by_ref.get(Ref(STATEFUL_SET.kind, job.kind.child_name(job, slot)))
    if child is None:
        return Replica(slot, None, "Unknown")
    pods = tuple(sorted(family.pods_by_owner.get(child.uid, ()), key=lambda one: one.name))
    found = Replica(slot, child, "Unknown", None, (), restarts(pods), pods_ended=child.replicas == 0)
    if child.deleting or child.attempt < job.status.role(slot.role).attempt:
        return found._replace(message="is being replaced")
    lives = [run_state(job, slot, pod) for pod in pods]
    running = sum(state == "Running" for state, _ in lives)
    waits = next((why for state, why in lives if state != "Running"), "" if lives else NO_POD)
    crashed = next((text for pod in pods if (text := last_crash(pod))), "")
    return found._replace(
        state="Running" if running else "Starting", message=waits, last_crash=crashed, running=running
    )


def render_set(job: Job, slot: Slot, attempt: int) -> Json:
    """The StatefulSet of one role, but for name, owner and common labels. Its pods do not wait for one another."""
    role = job.role(slot.role)
    if role is None or role.template is None:
        raise ValueError(f"{job.key}: nothing to make {slot.role} from")
    template = job.kind.mutate_pod_template(role.template, job, slot)
    name = job.kind.child_name(job, slot)
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": job.kind.child_metadata(job, slot),
        "spec": {
            "replicas": role.replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**job.kind.child_labels(job, slot), OWNER: job.uid}},
            "template": {**template, "spec": {**template.get("spec", {}), "restartPolicy": "Always"}},
        },
    }


def stop_set(replica: Replica, reason: str) -> Patch | None:
    return None if replica.child is None or replica.child.deleting else _size(replica, 0)


def resume_set(job: Job, replica: Replica) -> Patch | None:
    """Brings a set to the size that the spec says now, also one that somebody else has changed."""
    role, child = job.role(replica.slot.role), replica.child
    # The attempt may have become a new one in this very pass; the set of the old one is deleted, not resized.
    fresh = child is not None and replica.state != "Unknown" and child.attempt >= job.status.role(child.role).attempt
    return _size(replica, role.replicas) if role and role.template is not None and fresh else None


def _size(replica: Replica, size: int) -> Patch | None:
    child = replica.child
    if child is None or child.replicas == size:
        return None
    return Patch(STATEFUL_SET, child.name, "", {"metadata": {"uid": child.uid}, "spec": {"replicas": size}})


SET_CARRIER = Carrier(
    gvk=STATEFUL_SET,
    observe=observe_set,
    render=render_set,
    stop=stop_set,
    resume=resume_set,
    pods_ended=lambda replica: replica.pods_ended,
    failed_attempts=lambda replica: (),
    one_object_per_role=True,
)
