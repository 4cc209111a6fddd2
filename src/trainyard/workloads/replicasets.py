"""The ReplicaSet controller (apps/v1): keeps `spec.replicas` interchangeable pods of one template.

The name of a pod is derived from the uid of the ReplicaSet and a number, the lowest whose name is free: a controller
that dies after a create and starts again creates the same name. A pod that is being deleted is replaced at once, under
another name. Not implemented: adoption of pods without an owner, minReadySeconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice

from trainyard.objects import Json, controller_reference, is_deleting, name_of, parse_time, uid_of
from trainyard.objects.resources import POD, REPLICA_SET
from trainyard.objects.writes import Create
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import status_of
from trainyard.workloads.writes import Decision, UpdateStatus, delete_of


def decide(replica_set: Json, pods: list[Json], now: float) -> Decision:
    """The writes for one ReplicaSet. `pods` are those whose controller owner it is."""
    if is_deleting(replica_set):
        return Decision()
    active = [pod for pod in pods if pod_facts.active(pod)]
    ended = [pod for pod in pods if pod_facts.is_finished(pod) and not is_deleting(pod)]
    replicas = pod_facts.replicas(replica_set)
    surplus = sorted(active, key=_deletion_order)[: max(0, len(active) - replicas)]
    used_names = {name_of(pod) for pod in pods}
    free_names = (name for name in _pod_names(replica_set) if name not in used_names)
    status = _status(replica_set, active)
    stored = status == status_of(replica_set)
    # Sent first: for a stale copy the API server answers Conflict, and no pod is deleted or created.
    status_update = () if stored else (UpdateStatus(REPLICA_SET, {**replica_set, "status": status}),)
    deletes = [delete_of(POD, pod) for pod in (*ended, *surplus)]
    missing = max(0, replicas - len(active))
    creates = [Create(POD, _new_pod(replica_set, name)) for name in islice(free_names, missing)]
    return Decision((*status_update, *deletes, *creates))


def _deletion_order(pod: Json) -> tuple[bool, float]:
    """The sort key for scaling down, as in kube-controller-manager: pods that are not ready are deleted before ready
    pods, younger pods before older ones."""
    return pod_facts.ready(pod), -(parse_time(pod["metadata"].get("creationTimestamp")) or 0.0)


def _pod_names(replica_set: Json) -> Iterable[str]:
    for number in count():
        yield pod_facts.generated_name(name_of(replica_set), pod_facts.name_suffix(uid_of(replica_set), number))


def _new_pod(replica_set: Json, name: str) -> Json:
    owner = controller_reference("apps/v1", "ReplicaSet", name_of(replica_set), uid_of(replica_set))
    return pod_facts.pod_from_template(replica_set["spec"].get("template") or {}, replica_set, owner, name)


def _status(replica_set: Json, active: list[Json]) -> Json:
    ready = sum(pod_facts.ready(pod) for pod in active)
    status: Json = {
        "observedGeneration": replica_set["metadata"].get("generation", 1),
        "replicas": len(active),
    }
    counts = {"fullyLabeledReplicas": len(active), "readyReplicas": ready, "availableReplicas": ready}
    return status | {field: value for field, value in counts.items() if value}
