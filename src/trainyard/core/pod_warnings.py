"""Events of a job about its pods that cannot start, in the words of the Training Operator (RecordAbnormalPods), and
about those whose container ran out of memory and was restarted in place: no replica ends by that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.core.children import decode_containers
from trainyard.core.conditions import STUCK_REASONS
from trainyard.core.job_state import OwnedObjects, Replica
from trainyard.core.model import Child, Event

OOM_KILLED = "OOMKilled"


def events(replicas: Sequence[Replica], owned: OwnedObjects) -> tuple[Event, ...]:
    """A Warning for each pod that cannot be placed, or a container of which waits for what a person has to change, and
    for each whose container was last restarted in place because it ran out of memory."""
    out_of_memory = tuple(
        Event("Warning", OOM_KILLED, f"{replica.name}: {replica.last_restart_reason}; restarted in place", child.ref)
        for replica in replicas
        if OOM_KILLED in replica.last_restart_reason and (child := replica.child) is not None
    )
    return (*out_of_memory, *_unable_to_start(replicas, owned))


def _unable_to_start(replicas: Iterable[Replica], owned: OwnedObjects) -> tuple[Event, ...]:
    if not any(replica.message in STUCK_REASONS for replica in replicas):
        return ()
    pods = [pod for pods in owned.pods_by_owner.values() for pod in pods if not pod.deleting]
    return tuple(event for pod in pods if (event := _event(pod)))


def _event(pod: Child) -> Event | None:
    if pod.reason in STUCK_REASONS:
        return Event("Warning", pod.reason, f"Error pod {pod.name} condition message: {pod.message}", pod.ref)
    for container in decode_containers(pod):
        if container.state == "waiting" and container.reason in STUCK_REASONS:
            text = f"Error pod {pod.name} container {container.name} waiting message: {pod.message}"
            return Event("Warning", container.reason, text, pod.ref)
    return None
