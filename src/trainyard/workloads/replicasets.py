"""apps/v1 ReplicaSet: so many pods of one template, whichever they are.

Names of pods come from the set's uid and a number, the lowest numbers whose names are free: a controller that dies
after a create and starts again asks for the same name. A pod that is being deleted is replaced at once, under another
name. Not here: adoption of pods without an owner, minReadySeconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice

from trainyard.objects import Json, name_of, owner_reference, parse_time, uid_of
from trainyard.objects.resources import POD, REPLICA_SET
from trainyard.workloads import pods as pod_facts
from trainyard.workloads.pods import status_of
from trainyard.workloads.writes import Create, Decision, SetStatus, delete_of


def decide(replica_set: Json, pods: list[Json], now: float) -> Decision:
    """`pods` are those whose controller owner is this ReplicaSet."""
    if pod_facts.deleting(replica_set):
        return Decision()
    active = [pod for pod in pods if pod_facts.active(pod)]
    ended = [pod for pod in pods if pod_facts.ended(pod) and not pod_facts.deleting(pod)]
    replicas = pod_facts.replicas(replica_set)
    surplus = sorted(active, key=_deleted_first)[: max(0, len(active) - replicas)]
    taken = {name_of(pod) for pod in pods}
    free = (name for name in _names(replica_set) if name not in taken)
    missing = islice(free, max(0, replicas - len(active)))
    status = _status(replica_set, active)
    fence = (SetStatus(REPLICA_SET, {**replica_set, "status": status}),) if status != status_of(replica_set) else ()
    going = [delete_of(POD, pod) for pod in (*ended, *surplus)]
    return Decision((*fence, *going, *(Create(POD, _pod(replica_set, name)) for name in missing)))


def _deleted_first(pod: Json) -> tuple[bool, float]:
    """As Kubernetes has it: pods that are not ready before those that are, younger ones before older ones."""
    return pod_facts.ready(pod), -(parse_time(pod["metadata"].get("creationTimestamp")) or 0.0)


def _names(replica_set: Json) -> Iterable[str]:
    for number in count():
        yield pod_facts.generated(name_of(replica_set), pod_facts.suffix(uid_of(replica_set), number))


def _pod(replica_set: Json, name: str) -> Json:
    owner = owner_reference("apps/v1", "ReplicaSet", name_of(replica_set), uid_of(replica_set))
    return pod_facts.from_template(replica_set["spec"].get("template") or {}, replica_set, owner, name)


def _status(replica_set: Json, active: list[Json]) -> Json:
    ready = sum(pod_facts.ready(pod) for pod in active)
    status: Json = {
        "observedGeneration": replica_set["metadata"].get("generation", 1),
        "replicas": len(active),
    }
    counts = {"fullyLabeledReplicas": len(active), "readyReplicas": ready, "availableReplicas": ready}
    return status | {field: number for field, number in counts.items() if number}
